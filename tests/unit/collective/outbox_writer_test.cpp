#include "collective/outbox_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "call_memory.h"

namespace ranklink {
namespace {

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

class OutboxWriterTest : public testing::TestWithParam<long> {};

TEST_P(OutboxWriterTest, CopiesAllBytesAndNoOthers) {
  OutboxWriter writer(GetParam());
  for (const std::size_t size :
       {0, 1, 64, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 131'072, 1 << 20, 3'000'001}) {
    const auto from = some_bytes(size + 1);
    Area to(size, size % 64);
    for (int times = 0; times < 3; ++times) {
      std::fill_n(to.data(), size, std::byte{});
      writer.copy(to.data(), from.data() + 1, size);
      EXPECT_TRUE(std::equal(from.begin() + 1, from.end(), to.data())) << size;
      EXPECT_TRUE(to.intact()) << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Limits, OutboxWriterTest,
                         testing::Values(OutboxWriter::kNothing, OutboxWriter::kLimit,
                                         OutboxWriter::kAnything));

TEST(OutboxWriterChoiceTest, GoesByTheTimeThatOrdinaryStoresTake) {
  const auto from = some_bytes(OutboxWriter::kLeast);
  auto to = from;
  OutboxWriter never(OutboxWriter::kAnything);
  never.copy(to.data(), from.data(), from.size());
  EXPECT_FALSE(never.past_caches(from.size()));
  OutboxWriter always(OutboxWriter::kNothing);
  EXPECT_FALSE(always.past_caches(from.size()));  // nothing is known yet
  always.copy(to.data(), from.data(), from.size());
  EXPECT_TRUE(always.past_caches(from.size()));
  EXPECT_FALSE(always.past_caches(from.size() - 1));
}

}  // namespace
}  // namespace ranklink
