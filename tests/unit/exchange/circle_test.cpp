#include "exchange/circle.h"

#include <gtest/gtest.h>

#include <set>

namespace ranklink {
namespace {

TEST(Circle, CountsTheTrialsOfTheWholeJob) {
  Circle job;
  for (std::uint32_t trial = 1; trial < 100; ++trial) EXPECT_EQ(job.next_tag(), trial);
}

// All members give the same tags, and each trial one of its own.
TEST(Circle, GivesItsMembersTheSameTags) {
  Circle mine{.members = {0, 2}, .number = 0x1234'5678};
  Circle theirs{.members = {0, 2}, .number = 0x1234'5678};
  std::set<std::uint32_t> tags;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t tag = mine.next_tag();
    EXPECT_EQ(theirs.next_tag(), tag);
    EXPECT_TRUE(tags.insert(tag).second);
  }
}

// A pair of ranks may be in several groups at once.
TEST(Circle, GivesEachGroupOtherTags) {
  Circle job;
  std::set<std::uint32_t> tags;
  for (int i = 0; i < 1000; ++i) tags.insert(job.next_tag());
  for (const std::uint32_t number : {1u, 2u, 3u, 0x10000u, 0xffff'ffffu}) {
    Circle group{.members = {0, 2}, .number = number};
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(tags.insert(group.next_tag()).second);
  }
}

}  // namespace
}  // namespace ranklink
