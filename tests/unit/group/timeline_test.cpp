#include "group/timeline.h"

#include <gtest/gtest.h>

#include "../rendezvous/refusals.h"

namespace ranklink {
namespace {

std::vector<StepReport> decoded(ByteView bytes) {
  Reader reader(bytes);
  auto steps = Timeline::decode(reader, 3);
  reader.end();
  return steps;
}

TEST(Timeline, HoldsStepsInOrder) {
  Timeline timeline;
  EXPECT_EQ(timeline.total_ms(), 0);
  timeline.begin("join");
  timeline.begin("inspect");
  timeline.begin("try");
  timeline.end();
  timeline.end();
  const auto steps = decoded(timeline.encode());
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, "join");
  EXPECT_EQ(steps[2].step, "try");
  for (const StepReport& step : steps) {
    EXPECT_EQ(step.rank, 3);
    EXPECT_GE(step.end_ms, step.start_ms);
    EXPECT_GT(step.start_ms, 1.6e12);  // of the wall clock
  }
  EXPECT_GE(timeline.total_ms(), 0);
}

TEST(Timeline, ShowsAStepThatHasNotEnded) {
  Timeline timeline;
  timeline.begin("join");
  const auto steps = decoded(timeline.encode());
  EXPECT_EQ(steps.at(0).end_ms, steps.at(0).start_ms);
}

TEST(Timeline, IsTakenWholeOrNotAtAll) {
  Timeline timeline;
  timeline.begin("join");
  timeline.begin("inspect");
  expect_whole_only(timeline.encode(), decoded);
}

TEST(Rebase, LetsTheEarliestStepBeginAtZero) {
  std::vector<StepReport> steps = {{.rank = 0, .step = "a", .start_ms = 105, .end_ms = 110},
                                   {.rank = 1, .step = "a", .start_ms = 100, .end_ms = 103}};
  rebase(steps);
  EXPECT_EQ(steps[0].start_ms, 5);
  EXPECT_EQ(steps[0].end_ms, 10);
  EXPECT_EQ(steps[1].start_ms, 0);
  EXPECT_EQ(steps[1].end_ms, 3);
  std::vector<StepReport> none;
  rebase(none);
}

}  // namespace
}  // namespace ranklink
