#include "route/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ranklink {
namespace {

struct Part {
  std::size_t begin;
  std::size_t end;
};

TEST(SegmentLayout, GivesEachPartAPlaceOfItsOwn) {
  for (const int size : {1, 2, 3, 7, 8, 64, 200}) {
    const SegmentLayout layout(size);
    std::vector<Part> parts = {{layout.outbox(), layout.outbox() + layout.outbox_bytes()}};
    for (int from = 0; from < size; ++from) {
      // What one peer writes, no other peer's line holds.
      const std::size_t line = layout.credit(from);
      EXPECT_EQ(line % SegmentLayout::kLine, 0u);
      EXPECT_GE(layout.grants(from), line + 4);
      EXPECT_LE(layout.grants(from) + 4, line + SegmentLayout::kLine);
      parts.push_back({line, line + SegmentLayout::kLine});
      EXPECT_EQ(layout.job(from) % SegmentLayout::kLine, 0u);
      parts.push_back({layout.job(from), layout.job(from) + SegmentLayout::kLine});
      for (std::uint32_t sequence = 0; sequence < SegmentLayout::kSlots; ++sequence) {
        const std::size_t slot = layout.slot(from, sequence);
        EXPECT_EQ(slot % SegmentLayout::kLine, 0u);
        EXPECT_LE(slot + SegmentLayout::kSlotBytes, layout.control_bytes());
        parts.push_back({slot, slot + SegmentLayout::kSlotBytes});
      }
    }
    std::sort(parts.begin(), parts.end(), [](Part a, Part b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < parts.size(); ++i) {
      ASSERT_LE(parts[i - 1].end, parts[i].begin) << size;
    }
    EXPECT_LE(parts.back().end, layout.bytes());
    EXPECT_EQ(layout.bytes() % 4096, 0u);
    EXPECT_EQ(layout.outbox() % 4096, 0u);
    EXPECT_EQ(layout.bank_bytes() % 4096, 0u);
    EXPECT_EQ(layout.outbox_bytes(), SegmentLayout::kBanks * layout.bank_bytes());
  }
}

// Slots are taken in turn, also where the sequence begins anew.
TEST(SegmentLayout, TakesSlotsInTurn) {
  const SegmentLayout layout(3);
  EXPECT_EQ(layout.slot(1, SegmentLayout::kSlots), layout.slot(1, 0));
  EXPECT_EQ(layout.slot(1, 0xffff'ffff), layout.slot(1, SegmentLayout::kSlots - 1));
  EXPECT_EQ(layout.slot(1, 0xffff'fff0), layout.slot(1, 0));
}

// A large group takes little more memory than a small one.
TEST(SegmentLayout, BoundsItsMemory) {
  for (const int size : {1, 2, 8, 16}) EXPECT_EQ(SegmentLayout(size).bank_bytes(), 256u << 10);
  EXPECT_EQ(SegmentLayout(64).bank_bytes(), 64u << 10);
  for (const int size : {256, 512, 4096, 65'536}) {
    EXPECT_EQ(SegmentLayout(size).bank_bytes(), 16u << 10);
  }
  constexpr std::size_t kForAPeer =
      2 * SegmentLayout::kLine + SegmentLayout::kSlots * SegmentLayout::kSlotBytes;
  for (const int size : {1, 2, 8, 64, 256, 4096, 65'536}) {
    EXPECT_LE(SegmentLayout(size).bytes(),
              (1u << 20) + static_cast<std::size_t>(size) * kForAPeer + 4096);
  }
}

}  // namespace
}  // namespace ranklink
