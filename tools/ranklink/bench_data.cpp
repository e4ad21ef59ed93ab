#include "bench_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ranklink {
namespace {

bool is_float(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 ||
         type == DataType::f64;
}

// The finalizer of splitmix64: neighbouring inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t load(const std::byte* from, std::size_t size) {
  const auto read = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return std::uint64_t{value};
  };
  if (size == 1) return read(std::uint8_t{});
  if (size == 2) return read(std::uint16_t{});
  if (size == 4) return read(std::uint32_t{});
  return read(std::uint64_t{});
}

void store(std::byte* to, std::uint64_t bits, std::size_t size) {
  const auto write = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  if (size == 1) return write(static_cast<std::uint8_t>(bits));
  if (size == 2) return write(static_cast<std::uint16_t>(bits));
  if (size == 4) return write(static_cast<std::uint32_t>(bits));
  write(bits);
}

// The integer that the low bits are in `type`; all of them fit in 64 bits with a sign.
std::int64_t integer_value(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::i8:
      return static_cast<std::int8_t>(bits);
    case DataType::u8:
      return static_cast<std::uint8_t>(bits);
    case DataType::i32:
      return static_cast<std::int32_t>(bits);
    default:
      return static_cast<std::int64_t>(bits);
  }
}

std::int64_t largest_integer(DataType type) {
  switch (type) {
    case DataType::i8:
      return std::numeric_limits<std::int8_t>::max();
    case DataType::u8:
      return std::numeric_limits<std::uint8_t>::max();
    case DataType::i32:
      return std::numeric_limits<std::int32_t>::max();
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

// The largest error of rounding to nearest, relative to the result.
double rounding_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return 0x1p-11;
    case DataType::bf16:
      return 0x1p-8;
    case DataType::f32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

// The bits of `value` without the digits that `type` has no room for: any neighbour will do for
// test data. Not for what is too large or too small for f16.
std::uint64_t float_bits(DataType type, double value) {
  if (type == DataType::f64) return std::bit_cast<std::uint64_t>(value);
  const auto single = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (type == DataType::f32) return single;
  if (type == DataType::bf16) return single >> 16;
  constexpr std::uint32_t kBiases = 127 - 15;
  const std::uint32_t sign = single >> 31;
  return sign << 15 | (((single & 0x7fffffff) >> 13) - (kBiases << 10));
}

std::uint64_t integer_bits(const TestData& data, std::uint64_t random) {
  if (data.op == ReduceOp::prod) return random | 1;  // even factors would soon make it 0
  if (data.op != ReduceOp::avg) return random;
  // The sum must not wrap, or its average would be of something else.
  const auto most = static_cast<std::uint64_t>(
      std::max<std::int64_t>(1, largest_integer(data.type) / data.ranks));
  if (data.type == DataType::u8) return random % (most + 1);
  return random % (2 * most + 1) - most;
}

std::uint64_t random_float_bits(const TestData& data, std::uint64_t random) {
  const double part = static_cast<double>(random >> 11) * 0x1p-53;  // from 0 to 1
  double value = 0.0625 + part;
  if (data.op == ReduceOp::prod) {
    // The more factors the nearer to 1, so that the product of all is far from any limit.
    value = 1 + std::min(1.0, 4.0 / data.ranks) * (1.5 * part - 0.5);
  }
  return float_bits(data.type, (random & 1) != 0 ? -value : value);
}

std::uint64_t reduce_integers(const TestData& data, std::size_t index) {
  const auto value = [&](int rank) { return integer_value(data.type, data.bits(rank, index)); };
  auto result = static_cast<std::uint64_t>(value(0));  // unsigned ones may wrap
  for (int rank = 1; rank < data.ranks; ++rank) {
    const auto other = static_cast<std::uint64_t>(value(rank));
    switch (*data.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result += other;
        break;
      case ReduceOp::prod:
        result *= other;
        break;
      case ReduceOp::min:
        result = static_cast<std::uint64_t>(
            std::min(static_cast<std::int64_t>(result), static_cast<std::int64_t>(other)));
        break;
      case ReduceOp::max:
        result = static_cast<std::uint64_t>(
            std::max(static_cast<std::int64_t>(result), static_cast<std::int64_t>(other)));
        break;
    }
  }
  if (data.op != ReduceOp::avg) return result;
  return static_cast<std::uint64_t>(integer_value(data.type, result) / data.ranks);
}

}  // namespace

double float_value(DataType type, std::uint64_t bits) {
  if (type == DataType::f64) return std::bit_cast<double>(bits);
  const auto low = static_cast<std::uint32_t>(bits);
  if (type == DataType::f32) return std::bit_cast<float>(low);
  if (type == DataType::bf16) return std::bit_cast<float>(low << 16);
  if ((low & 0x7c00) == 0x7c00) {
    if ((low & 0x03ff) != 0) return std::numeric_limits<double>::quiet_NaN();
    return (low & 0x8000) != 0 ? -HUGE_VAL : HUGE_VAL;
  }
  // An f32 of the same digits, whose exponent is then put right, which is exact.
  const float magnitude = std::bit_cast<float>((low & 0x7fff) << 13) * 0x1p112f;
  return (low & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint64_t TestData::bits(int rank, std::size_t index) const {
  const std::uint64_t random =
      mix(mix(seed << 32 | static_cast<std::uint32_t>(rank)) ^ (index % kPeriod));
  if (!op) return random;
  return is_float(type) ? random_float_bits(*this, random) : integer_bits(*this, random);
}

void TestData::fill(int rank, std::span<std::byte> memory) const {
  const std::size_t size = size_of(type);
  std::vector<std::byte> period(std::min(kPeriod * size, memory.size()));
  for (std::size_t at = 0; at < period.size(); at += size) {
    store(period.data() + at, bits(rank, at / size), size);
  }
  for (std::size_t at = 0; at < memory.size(); at += period.size()) {
    std::memcpy(memory.data() + at, period.data(), std::min(period.size(), memory.size() - at));
  }
}

Reference Reference::moved(const TestData& data, int rank, std::size_t first, std::size_t count) {
  Reference reference(data.type, count);
  const std::size_t size = size_of(data.type);
  const std::size_t period = std::min(TestData::kPeriod, count);
  reference.exact_.resize(period * size);
  for (std::size_t i = 0; i < period; ++i) {
    store(reference.exact_.data() + i * size, data.bits(rank, first + i), size);
  }
  return reference;
}

Reference Reference::reduced(const TestData& data, std::size_t first, std::size_t count) {
  Reference reference(data.type, count);
  const std::size_t size = size_of(data.type);
  const std::size_t period = std::min(TestData::kPeriod, count);
  const bool picks = data.op == ReduceOp::min || data.op == ReduceOp::max;
  if (!is_float(data.type) || picks) {
    reference.exact_.resize(period * size);
  } else {
    reference.ranges_.resize(period);
  }
  // What sums of 16-bit types are rounded to on the way; twice that, and more, since f64 rounds
  // too.
  const double step = data.type == DataType::f64 ? 0x1p-53 : 0x1p-24;
  const double steps = 2 * (data.ranks + 1) * step;
  const double smallest = data.type == DataType::f16 ? 0x1p-25 : 0x1p-149;
  for (std::size_t i = 0; i < period; ++i) {
    if (!is_float(data.type)) {
      store(reference.exact_.data() + i * size, reduce_integers(data, first + i), size);
      continue;
    }
    double result = float_value(data.type, data.bits(0, first + i));
    double magnitude = std::abs(result);
    for (int rank = 1; rank < data.ranks; ++rank) {
      const double other = float_value(data.type, data.bits(rank, first + i));
      if (data.op == ReduceOp::prod) {
        result *= other;
        magnitude = std::abs(result);
      } else if (picks) {
        result = data.op == ReduceOp::min ? std::min(result, other) : std::max(result, other);
      } else {
        result += other;
        magnitude += std::abs(other);
      }
    }
    if (picks) {
      store(reference.exact_.data() + i * size, float_bits(data.type, result), size);
      continue;
    }
    if (data.op == ReduceOp::avg) {
      result /= data.ranks;
      magnitude /= data.ranks;
    }
    reference.ranges_[i] = {
        result, rounding_of(data.type) * std::abs(result) + steps * magnitude + smallest};
  }
  return reference;
}

std::size_t Reference::count_wrong(const std::byte* got) const {
  return ranges_.empty() ? count_unequal(got) : count_outside(got);
}

std::size_t Reference::count_unequal(const std::byte* got) const {
  const std::size_t size = size_of(type_);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < count_ * size; at += exact_.size()) {
    const std::size_t length = std::min(exact_.size(), count_ * size - at);
    if (std::memcmp(got + at, exact_.data(), length) == 0) continue;
    for (std::size_t i = 0; i < length; i += size) {
      if (std::memcmp(got + at + i, exact_.data() + i, size) != 0) ++wrong;
    }
  }
  return wrong;
}

std::size_t Reference::count_outside(const std::byte* got) const {
  const std::size_t size = size_of(type_);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < count_; at += ranges_.size()) {
    const std::size_t length = std::min(ranges_.size(), count_ - at);
    for (std::size_t i = 0; i < length; ++i) {
      const double value = float_value(type_, load(got + (at + i) * size, size));
      // Written so that NaN is wrong.
      if (!(std::abs(value - ranges_[i].value) <= ranges_[i].tolerance)) ++wrong;
    }
  }
  return wrong;
}

}  // namespace ranklink
