#include "route/segment.h"

#include <gtest/gtest.h>

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
    std::vector<Part> parts;
    for (int from = 0; from < size; ++from) {
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        const std::size_t signal = layout.signal(from, static_cast<Channel>(channel));
        EXPECT_EQ(signal % 64, 0u);
        EXPECT_LE(signal + 64, layout.signals_bytes());
        parts.push_back({signal, signal + 64});
      }
      for (const Channel channel : {Channel::scatter, Channel::gather}) {
        const std::size_t inbox = layout.inbox(from, channel);
        EXPECT_EQ(inbox % 64, 0u);
        EXPECT_GE(inbox, layout.signals_bytes());
        parts.push_back({inbox, inbox + layout.chunk()});
      }
    }
    std::sort(parts.begin(), parts.end(), [](Part a, Part b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < parts.size(); ++i) {
      ASSERT_LE(parts[i - 1].end, parts[i].begin) << size;
    }
    EXPECT_LE(parts.back().end, layout.bytes());
    EXPECT_EQ(layout.bytes() % 4096, 0u);
    EXPECT_EQ(layout.signals_bytes() % 4096, 0u);
  }
}

// A large group takes little more memory than a small one.
TEST(SegmentLayout, BoundsItsMemory) {
  EXPECT_EQ(SegmentLayout(2).chunk(), 128u << 10);
  EXPECT_EQ(SegmentLayout(8).chunk(), 32u << 10);
  for (const int size : {1, 2, 8, 64, 256}) {
    EXPECT_LE(SegmentLayout(size).bytes(), (512u << 10) + 256u * 4 * 64 + 2 * 4096);
  }
  for (const int size : {512, 4096, 65'536}) {
    EXPECT_EQ(SegmentLayout(size).chunk(), 1024u);
    EXPECT_LE(SegmentLayout(size).bytes(), static_cast<std::size_t>(size) * 2304 + 2 * 4096);
  }
}

}  // namespace
}  // namespace ranklink
