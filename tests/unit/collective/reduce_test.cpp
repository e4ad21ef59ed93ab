#include "collective/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "reduce_reference.h"

namespace ranklink {
namespace {

constexpr DataType kTypes[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64,
                               DataType::i8,  DataType::u8,   DataType::i32, DataType::i64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

template <typename T>
T sample(std::mt19937& random) requires std::floating_point<T> {
  constexpr T kSpecial[] = {0,
                            -T{0},
                            1,
                            -1,
                            std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::quiet_NaN(),
                            std::numeric_limits<T>::max(),
                            std::numeric_limits<T>::denorm_min()};
  if (random() % 16 == 0) return kSpecial[random() % std::size(kSpecial)];
  // Numbers of all signs and of sizes that are near enough for each to matter in a sum.
  const T fraction = static_cast<T>(random()) / (1 << 31) - 1;
  return std::ldexp(fraction, static_cast<int>(random() % 12));
}

template <typename T>
T sample(std::mt19937& random) requires std::integral<T> {
  return static_cast<T>(static_cast<std::uint64_t>(random()) << 32 | random());
}

template <typename T>
Bytes samples(std::size_t count, std::mt19937& random) {
  Bytes bytes(count * sizeof(T));
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    const T value = sample<T>(random);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  return bytes;
}

Bytes samples16(Format16 format, std::size_t count, std::mt19937& random) {
  Bytes bytes(count * 2);
  for (std::size_t at = 0; at < bytes.size(); at += 2) {
    const auto bits = random() % 4 == 0 ? static_cast<std::uint16_t>(random())
                                        : format.encode(sample<float>(random));
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
  }
  return bytes;
}

Bytes samples(DataType type, std::size_t count, std::mt19937& random) {
  switch (type) {
    case DataType::f16:
      return samples16(kF16, count, random);
    case DataType::bf16:
      return samples16(kBf16, count, random);
    case DataType::f32:
      return samples<float>(count, random);
    case DataType::f64:
      return samples<double>(count, random);
    case DataType::i8:
      return samples<std::int8_t>(count, random);
    case DataType::u8:
      return samples<std::uint8_t>(count, random);
    case DataType::i32:
      return samples<std::int32_t>(count, random);
    case DataType::i64:
      break;
  }
  return samples<std::int64_t>(count, random);
}

// Memory at any distance from a cache line, between bytes that nobody may touch.
class Guarded {
 public:
  static constexpr std::size_t kGuard = 64;

  explicit Guarded(std::size_t capacity) : memory_(capacity + 4 * kGuard) {}

  // `data` of them, or no data yet.
  std::byte* place(std::size_t offset, std::size_t bytes, const std::byte* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (-address % kGuard) + offset % kGuard;
    bytes_ = bytes;
    std::memset(begin_, kFill, kGuard + bytes + kGuard);
    if (data != nullptr) std::memcpy(begin_ + kGuard, data, bytes);
    return begin_ + kGuard;
  }
  bool intact() const {
    return std::memcmp(begin_, kExpected.data(), kGuard) == 0 &&
           std::memcmp(begin_ + kGuard + bytes_, kExpected.data(), kGuard) == 0;
  }

 private:
  static constexpr int kFill = 0xa5;
  static constexpr auto kExpected = [] {
    std::array<std::uint8_t, kGuard> bytes{};
    bytes.fill(kFill);
    return bytes;
  }();
  Bytes memory_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

class ReduceTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { use_reduce_target(GetParam()); }
  void TearDown() override { use_reduce_target(reduce_targets().front()); }
};

INSTANTIATE_TEST_SUITE_P(Targets, ReduceTest, testing::ValuesIn(reduce_targets()),
                         [](const auto& test) { return std::string(test.param); });

// How one call is made. `place` is the input whose memory `output` is, or the number of inputs;
// `second` then is that of the next.
struct Shape {
  std::size_t count;
  std::size_t place;
  bool second;
  bool streaming;
};

class Caller {
 public:
  static constexpr std::size_t kMost = 1000;  // elements

  Caller(Reduction reduction, std::size_t size)
      : reduction_(reduction), size_(size), memory_(size + 2, Guarded(kMost * 8)) {
    std::mt19937 random(static_cast<unsigned>(size));
    for (std::size_t i = 0; i < size; ++i) data_.push_back(samples(reduction.type, kMost, random));
    expected_ = reference(reduction, data_);
  }

  void call(const Shape& shape) {
    const std::size_t bytes = shape.count * size_of(reduction_.type);
    std::vector<std::byte*> places;
    for (std::size_t i = 0; i < size_ + 2; ++i) {
      places.push_back(memory_[i].place(offset(), bytes, i < size_ ? data_[i].data() : nullptr));
    }
    const std::size_t output = shape.place;
    const std::size_t second =
        shape.place == size_ || size_ == 1 ? size_ + 1 : (output + 1) % size_;
    const std::vector<const std::byte*> inputs(places.data(), places.data() + size_);
    reduce(reduction_, places[output], shape.second ? places[second] : nullptr, inputs, shape.count,
           shape.streaming);
    for (std::size_t i = 0; i < size_ + 2; ++i) {
      ASSERT_TRUE(memory_[i].intact()) << "beyond buffer " << i << describe(shape);
      if (i == output || (shape.second && i == second)) {
        ASSERT_EQ(difference(reduction_.type, places[i], expected_.data(), shape.count), "")
            << (i == output ? "output" : "second") << describe(shape);
      } else if (i < size_) {
        ASSERT_TRUE(bytes == 0 || std::memcmp(places[i], data_[i].data(), bytes) == 0)
            << "input " << i << describe(shape);
      }
    }
  }

 private:
  // Aligned to elements in every other call, else to nothing.
  std::size_t offset() {
    turn_ += 1;
    const std::size_t any = random_() % Guarded::kGuard;
    return turn_ / (size_ + 2) % 2 == 0 ? any : any / 8 * 8;
  }

  std::string describe(const Shape& shape) const {
    return std::string(" of a ") + std::string(to_string(reduction_.op)) + " of " +
           std::to_string(size_) + " times " + std::to_string(shape.count) + " " +
           std::string(to_string(reduction_.type)) +
           (shape.place < size_ ? ", in place of " + std::to_string(shape.place) : "") +
           (shape.second ? ", second" : "") + (shape.streaming ? ", streaming" : "");
  }

  Reduction reduction_;
  std::size_t size_;
  std::vector<Bytes> data_;
  Bytes expected_;
  std::vector<Guarded> memory_;
  std::minstd_rand random_;
  std::size_t turn_ = 0;
};

std::vector<std::size_t> counts() {
  std::vector<std::size_t> counts = {0, 1, 2, 7, 8, 9, 15, 16, 17, Caller::kMost};
  for (std::size_t count = 31; count <= 67; ++count) counts.push_back(count);
  return counts;
}

TEST_P(ReduceTest, MatchesTheReference) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const std::size_t size : {1, 2, 3, 4, 5, 8}) {
        Caller caller({.type = type, .op = op}, size);
        for (const std::size_t count : counts()) {
          for (std::size_t place = 0; place <= size; ++place) {
            for (const bool second : {false, true}) {
              for (const bool streaming : {false, true}) {
                ASSERT_NO_FATAL_FAILURE(caller.call(
                    {.count = count, .place = place, .second = second, .streaming = streaming}));
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, CopiesPastTheCaches) {
  std::mt19937 random(1);
  const Bytes data = samples(DataType::u8, 5000, random);
  Guarded from(data.size());
  Guarded to(data.size());
  for (const std::size_t bytes : {0, 1, 2, 31, 32, 63, 64, 65, 127, 128, 200, 1000, 4096, 5000}) {
    for (const std::size_t offset : {0, 1, 8, 32, 63}) {
      std::byte* output = to.place(offset, bytes, nullptr);
      copy_streaming(output, from.place(5 * offset, bytes, data.data()), bytes);
      EXPECT_TRUE(bytes == 0 || std::memcmp(output, data.data(), bytes) == 0);
      EXPECT_TRUE(to.intact());
    }
  }
}

// ---- Floats of 16 bits ----

// For each of the 65,536 values.
template <typename F>
Bytes for_all(F&& function) {
  Bytes bytes(0x10000 * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(function(static_cast<std::uint16_t>(i)));
    std::memcpy(bytes.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return bytes;
}
Bytes all_values() {
  return for_all([](std::uint16_t bits) { return bits; });
}
Bytes always(std::uint16_t value) {
  return for_all([value](std::uint16_t) { return value; });
}

class Reduce16Test : public testing::TestWithParam<DataType> {
 protected:
  static constexpr std::size_t kCount = 0x10000;

  Format16 format() const { return GetParam() == DataType::f16 ? kF16 : kBf16; }
  std::uint16_t encode(float value) const { return format().encode(value); }
  std::uint16_t largest() const { return static_cast<std::uint16_t>(format().infinity() - 1); }

  // Each target gives `expected`, and no signalling NaN.
  void expect(ReduceOp op, const std::vector<Bytes>& inputs, const Bytes& expected) const {
    std::vector<const std::byte*> pointers;
    for (const Bytes& input : inputs) pointers.push_back(input.data());
    for (const std::string_view target : reduce_targets()) {
      use_reduce_target(target);
      Bytes output(expected.size());
      reduce({.type = GetParam(), .op = op}, output.data(), nullptr, pointers, kCount);
      EXPECT_EQ(difference(GetParam(), output.data(), expected.data(), kCount), "")
          << to_string(op) << " on " << target;
      if (op == ReduceOp::min || op == ReduceOp::max) continue;
      for (std::size_t i = 0; i < kCount; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, output.data() + i * sizeof bits, sizeof bits);
        ASSERT_TRUE(!format().is_nan(bits) || format().is_quiet(bits))
            << to_string(op) << " on " << target << ": [" << i << "] = " << bits;
      }
    }
    use_reduce_target(reduce_targets().front());
  }
  void expect(ReduceOp op, const std::vector<Bytes>& inputs) const {
    expect(op, inputs, reference({.type = GetParam(), .op = op}, inputs));
  }
};

INSTANTIATE_TEST_SUITE_P(Types, Reduce16Test, testing::Values(DataType::f16, DataType::bf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(Reduce16Test, CopiesOneInput) {
  const Bytes input = all_values();
  const std::byte* pointer = input.data();
  for (const ReduceOp op : kOps) {
    Bytes output(input.size());
    reduce({.type = GetParam(), .op = op}, output.data(), nullptr, {&pointer, 1}, kCount);
    EXPECT_EQ(output, input) << to_string(op);
  }
}

// Through f32 and back.
TEST_P(Reduce16Test, KeepsEveryValue) {
  const Bytes all = all_values();
  expect(ReduceOp::sum, {all, always(encode(-0.0f))}, all);
  expect(ReduceOp::prod, {all, always(encode(1))}, all);
  expect(ReduceOp::min, {all, all}, all);
  expect(ReduceOp::max, {all, all}, all);
}

TEST_P(Reduce16Test, RoundsSums) {
  const Bytes all = all_values();
  // Half a unit in the last place of the largest number tips it into infinity, less does not.
  const auto half = encode(std::ldexp(1.0f, GetParam() == DataType::f16 ? 4 : 119));
  const auto less = static_cast<std::uint16_t>(half - 1);
  for (const std::uint16_t other :
       {encode(0), encode(1), encode(-1.5f), half, less, std::uint16_t{1}, std::uint16_t{0x8001},
        largest(), format().infinity(), std::uint16_t(format().infinity() + 1)}) {
    expect(ReduceOp::sum, {all, always(other)});
  }
  expect(ReduceOp::sum, {all, for_all([](std::uint16_t bits) { return bits * 40503U; })});
}

// Half a unit in the last place, and one step to each side of it.
TEST_P(Reduce16Test, RoundsTiesToEven) {
  const auto half_unit = [this](std::uint16_t bits) -> std::uint16_t {
    const float value = std::fabs(format().decode(bits));
    if (!std::isfinite(value) || value == 0) return 0;
    return encode(std::ldexp(1.0f, std::ilogb(value) - format().mantissa - 1));
  };
  const Bytes all = all_values();
  for (const int step : {-1, 0, 1}) {
    const auto other = [&](std::uint16_t bits) {
      const int half = half_unit(bits);
      return half == 0 ? 0 : half + step;
    };
    expect(ReduceOp::sum, {all, for_all(other)});
    expect(ReduceOp::sum, {all, for_all([&](std::uint16_t bits) { return other(bits) | 0x8000; })});
  }
}

TEST_P(Reduce16Test, RoundsSubnormals) {
  const Bytes all = all_values();
  const Bytes zero = always(0);
  for (const float factor : {0.5f, 0.25f, 0.375f, 0x1p-7f, 0x1.2p-9f, 0x1p-14f}) {
    expect(ReduceOp::prod, {all, always(encode(factor))});
  }
  expect(ReduceOp::avg, {all, zero});
  expect(ReduceOp::avg, {all, zero, zero});
  expect(ReduceOp::avg, {all, zero, zero, zero});
}

TEST_P(Reduce16Test, RoundsOnce) {
  // Rounded after each step, the ones would vanish.
  const float large = std::ldexp(1.0f, format().mantissa + 1);
  const Bytes one = always(encode(1));
  expect(ReduceOp::sum, {always(encode(large)), one, one, one}, always(encode(large + 4)));
  // A sum beyond the largest number, but not beyond that of f32, may come back.
  if (GetParam() == DataType::f16) {
    const Bytes most = always(largest());
    expect(ReduceOp::avg, {most, most, most}, most);
    expect(ReduceOp::sum, {most, most, always(largest() | 0x8000)}, most);
  }
}

TEST_P(Reduce16Test, OverflowsToInfinity) {
  const Bytes infinity = always(format().infinity());
  const Bytes most = always(largest());
  expect(ReduceOp::sum, {most, most}, infinity);
  expect(ReduceOp::prod, {most, most}, infinity);
  const auto minus = static_cast<std::uint16_t>(largest() | 0x8000);
  expect(ReduceOp::prod, {most, always(minus)}, always(format().infinity() | 0x8000));
}

TEST_P(Reduce16Test, FindsExtremes) {
  const Bytes all = all_values();
  const Bytes other = for_all([](std::uint16_t bits) { return bits * 40503U; });
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    expect(op, {all, always(encode(0.5f))});
    expect(op, {all, other});
    expect(op, {other, all, always(format().infinity())});
  }
}

}  // namespace
}  // namespace ranklink
