#pragma once

// What reduce() promises, worked out an element at a time by the definitions.

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "collective/reduce.h"

namespace ranklink {

using Bytes = std::vector<std::byte>;

// A binary float of 16 bits: the bits of its mantissa, and the exponent of its smallest normal.
struct Format16 {
  int mantissa;
  int smallest;

  std::uint16_t infinity() const { return static_cast<std::uint16_t>(0x8000 - (1 << mantissa)); }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
  bool is_quiet(std::uint16_t bits) const { return (bits >> (mantissa - 1) & 1) != 0; }

  float decode(std::uint16_t bits) const {
    const int exponent = (bits & 0x7fff) >> mantissa;
    const int fraction = bits & ((1 << mantissa) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (is_nan(bits)) return std::numeric_limits<float>::quiet_NaN();
    if ((bits & 0x7fff) == infinity()) return static_cast<float>(sign * HUGE_VAL);
    if (exponent == 0) {
      return static_cast<float>(sign * std::ldexp(fraction, smallest - mantissa));
    }
    return static_cast<float>(
        sign * std::ldexp(fraction + (1 << mantissa), smallest - mantissa + exponent - 1));
  }

  std::uint16_t encode(float value) const {
    if (std::isnan(value)) return 0x7fff;
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(static_cast<double>(value));
    int bits = 0;
    if (std::isinf(size)) {
      bits = infinity();
    } else if (size != 0) {
      const int exponent = std::max(std::ilogb(size), smallest);
      // Whole units in the last place, to nearest even. They may carry into the exponent.
      bits = static_cast<int>(std::nearbyint(std::ldexp(size, mantissa - exponent))) +
             ((exponent - smallest) << mantissa);
      bits = std::min(bits, static_cast<int>(infinity()));
    }
    return static_cast<std::uint16_t>(sign | bits);
  }
};
inline constexpr Format16 kF16 = {.mantissa = 10, .smallest = -14};
inline constexpr Format16 kBf16 = {.mantissa = 7, .smallest = -126};

template <typename T>
T reference(ReduceOp op, const T* values, std::size_t size) requires std::floating_point<T> {
  T result = values[0];
  for (std::size_t i = 1; i < size; ++i) {
    const T value = values[i];
    if (op == ReduceOp::prod) {
      result *= value;
    } else if (op == ReduceOp::sum || op == ReduceOp::avg) {
      result += value;
    } else if (std::isnan(value)) {
      result = value;
    } else if (op == ReduceOp::min ? value < result : value > result) {
      result = value;
    }
  }
  return op == ReduceOp::avg ? result / static_cast<T>(size) : result;
}

template <typename T>
T reference(ReduceOp op, const T* values, std::size_t size) requires std::integral<T> {
  std::uint64_t sum = 0;
  std::uint64_t product = 1;
  T least = values[0];
  T most = values[0];
  for (std::size_t i = 0; i < size; ++i) {
    sum += static_cast<std::uint64_t>(values[i]);
    product *= static_cast<std::uint64_t>(values[i]);
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
  }
  switch (op) {
    case ReduceOp::sum:
      return static_cast<T>(sum);
    case ReduceOp::prod:
      return static_cast<T>(product);
    case ReduceOp::min:
      return least;
    case ReduceOp::max:
      return most;
    default:
      return static_cast<T>(std::int64_t{static_cast<T>(sum)} / static_cast<std::int64_t>(size));
  }
}

template <typename T>
void reference(ReduceOp op, const std::vector<Bytes>& inputs, Bytes& output) {
  std::array<T, 8> values;
  for (std::size_t at = 0; at < output.size(); at += sizeof(T)) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(&values[i], inputs[i].data() + at, sizeof(T));
    }
    const T result = reference(op, values.data(), inputs.size());
    std::memcpy(output.data() + at, &result, sizeof result);
  }
}

inline void reference16(Format16 format, ReduceOp op, const std::vector<Bytes>& inputs,
                        Bytes& output) {
  std::array<float, 8> values;
  std::uint16_t bits = 0;
  for (std::size_t at = 0; at < output.size(); at += sizeof bits) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(&bits, inputs[i].data() + at, sizeof bits);
      values[i] = format.decode(bits);
    }
    bits = format.encode(reference(op, values.data(), inputs.size()));
    std::memcpy(output.data() + at, &bits, sizeof bits);
  }
}

inline Bytes reference(Reduction reduction, const std::vector<Bytes>& inputs) {
  Bytes output(inputs[0].size());
  switch (reduction.type) {
    case DataType::f16:
      reference16(kF16, reduction.op, inputs, output);
      break;
    case DataType::bf16:
      reference16(kBf16, reduction.op, inputs, output);
      break;
    case DataType::f32:
      reference<float>(reduction.op, inputs, output);
      break;
    case DataType::f64:
      reference<double>(reduction.op, inputs, output);
      break;
    case DataType::i8:
      reference<std::int8_t>(reduction.op, inputs, output);
      break;
    case DataType::u8:
      reference<std::uint8_t>(reduction.op, inputs, output);
      break;
    case DataType::i32:
      reference<std::int32_t>(reduction.op, inputs, output);
      break;
    case DataType::i64:
      reference<std::int64_t>(reduction.op, inputs, output);
      break;
  }
  return output;
}

inline bool is_nan(DataType type, const std::byte* element) {
  const auto as = [element]<typename T>(T value) {
    std::memcpy(&value, element, sizeof value);
    return value;
  };
  switch (type) {
    case DataType::f16:
      return kF16.is_nan(as(std::uint16_t{}));
    case DataType::bf16:
      return kBf16.is_nan(as(std::uint16_t{}));
    case DataType::f32:
      return std::isnan(as(float{}));
    case DataType::f64:
      return std::isnan(as(double{}));
    default:
      return false;
  }
}

inline std::string to_text(DataType type, const std::byte* element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  std::array<char, 20> text;
  std::snprintf(text.data(), text.size(), "%#llx", static_cast<unsigned long long>(bits));
  return text.data();
}

// The first element that differs by more than a NaN's payload, as text, or an empty string.
inline std::string difference(DataType type, const std::byte* got, const std::byte* expected,
                              std::size_t count) {
  const std::size_t size = size_of(type);
  if (count == 0 || std::memcmp(got, expected, count * size) == 0) return {};
  for (std::size_t i = 0; i < count; ++i, got += size, expected += size) {
    if (std::memcmp(got, expected, size) == 0) continue;
    if (is_nan(type, got) && is_nan(type, expected)) continue;
    return "[" + std::to_string(i) + "] = " + to_text(type, got) + " instead of " +
           to_text(type, expected);
  }
  return {};
}

}  // namespace ranklink
