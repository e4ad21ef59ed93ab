#include "exchange/pattern.h"

#include <fmt/format.h>

#include <cstring>

namespace ranklink {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t seed_of(const PatternKey& key) {
  std::uint64_t halves[2];
  static_assert(sizeof halves == sizeof key.job);
  std::memcpy(halves, key.job.data(), sizeof halves);
  std::uint64_t seed = mix(halves[0]) ^ halves[1];
  const auto fold = [&](std::uint32_t a, std::uint32_t b) {
    seed = mix(seed ^ (static_cast<std::uint64_t>(a) << 32 | b));
  };
  fold(static_cast<std::uint32_t>(key.from), static_cast<std::uint32_t>(key.to));
  fold(key.access, key.trial);
  return seed;
}

}  // namespace

void write_pattern(const PatternKey& key, std::uint64_t offset, std::span<std::byte> bytes) {
  const std::uint64_t seed = seed_of(key);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = mix(seed ^ (offset + i));
    std::memcpy(bytes.data() + i, &word, 8);
  }
}

std::optional<std::string> check_pattern(const PatternKey& key, std::uint64_t offset,
                                         ByteView bytes) {
  const std::uint64_t seed = seed_of(key);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t expected = mix(seed ^ (offset + i));
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word != expected) {
      return fmt::format("the word at offset {} reads {:#018x} where {:#018x} was written",
                         offset + i, word, expected);
    }
  }
  return std::nullopt;
}

std::uint32_t pattern_signal(const PatternKey& key) {
  return static_cast<std::uint32_t>(mix(seed_of(key))) | 1;
}

}  // namespace ranklink
