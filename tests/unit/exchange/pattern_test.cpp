#include "exchange/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace ranklink {
namespace {

using testing::HasSubstr;

PatternKey sample_key() {
  PatternKey key{.job = {}, .from = 1, .to = 2, .access = kLoadAccess, .trial = 3};
  for (std::size_t i = 0; i < key.job.size(); ++i) key.job[i] = static_cast<std::byte>(i * 17);
  return key;
}

Bytes pattern_of(const PatternKey& key, std::uint64_t offset, std::size_t size = 64) {
  Bytes bytes(size);
  write_pattern(key, offset, bytes);
  return bytes;
}

TEST(Pattern, IsRecognised) {
  const PatternKey key = sample_key();
  for (const std::uint64_t offset : {0ull, 8ull, 4096ull, 0x7fff'ffff'f000ull}) {
    EXPECT_FALSE(check_pattern(key, offset, pattern_of(key, offset)));
  }
  EXPECT_FALSE(check_pattern(key, 0, {}));
}

TEST(Pattern, ShowsEverySingleFlippedBit) {
  const PatternKey key = sample_key();
  Bytes bytes = pattern_of(key, 4096);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto flip = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= flip;
    const auto wrong = check_pattern(key, 4096, bytes);
    ASSERT_TRUE(wrong) << bit;
    EXPECT_THAT(*wrong, HasSubstr("at offset " + std::to_string(4096 + bit / 64 * 8) + " "));
    bytes[bit / 8] ^= flip;
  }
}

TEST(Pattern, ShowsEverySwapOfTwoWords) {
  const PatternKey key = sample_key();
  const Bytes bytes = pattern_of(key, 0);
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = a + 1; b < 8; ++b) {
      Bytes swapped = bytes;
      for (std::size_t i = 0; i < 8; ++i) std::swap(swapped[a * 8 + i], swapped[b * 8 + i]);
      EXPECT_TRUE(check_pattern(key, 0, swapped));
    }
  }
}

TEST(Pattern, ShowsMemoryThatWasNotWritten) {
  EXPECT_TRUE(check_pattern(sample_key(), 0, Bytes(64)));
  EXPECT_TRUE(check_pattern(sample_key(), 0, Bytes(64, std::byte{0xff})));
}

// Each of these could be what a handle resolves to by mistake, so no word may be the same.
TEST(Pattern, SharesNoWordWithAnother) {
  const PatternKey key = sample_key();
  const std::vector<std::function<void(PatternKey&)>> changes = {
      [](PatternKey& k) { k.job[0] ^= std::byte{1}; },
      [](PatternKey& k) { k.job[15] ^= std::byte{0x80}; },
      [](PatternKey& k) { std::swap(k.from, k.to); },
      [](PatternKey& k) { k.from = 0; },
      [](PatternKey& k) { k.to = 3; },
      [](PatternKey& k) { k.access = kStoreAccess; },
      [](PatternKey& k) { k.access = kStreamAccess; },
      [](PatternKey& k) { ++k.trial; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    PatternKey other = key;
    changes[i](other);
    const Bytes bytes = pattern_of(other, 4096);
    for (std::size_t word = 0; word < 64; word += 8) {
      EXPECT_TRUE(check_pattern(key, 4096 + word, ByteView(bytes).subspan(word, 8))) << i;
    }
    EXPECT_NE(pattern_signal(other), pattern_signal(key)) << i;
  }
  for (const std::uint64_t offset : {0ull, 8ull, 4088ull, 4104ull, 8192ull}) {
    EXPECT_TRUE(check_pattern(key, 4096, pattern_of(key, offset, 8)));
  }
}

TEST(Pattern, RepeatsNoWord) {
  const Bytes bytes = pattern_of(sample_key(), 0, 1 << 20);
  std::set<std::uint64_t> words;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), bytes.size() / 8);
}

TEST(PatternSignal, IsNeverTheZeroOfFreshMemory) {
  PatternKey key = sample_key();
  for (key.trial = 0; key.trial < 10'000; ++key.trial) EXPECT_NE(pattern_signal(key), 0u);
}

}  // namespace
}  // namespace ranklink
