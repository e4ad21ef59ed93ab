#include "base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace ranklink {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Deadline, NeverDoesNotPass) {
  const Deadline never = Deadline::never();
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.left(), Deadline::Clock::duration::max());
  EXPECT_EQ(never.poll_ms(Milliseconds(70)), 70);
  EXPECT_EQ(never.slice(seconds(2)).tv_sec, 2);
}

TEST(Deadline, OfWhatTheClockCannotHoldIsNever) {
  EXPECT_TRUE(Deadline::after(Milliseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(nanoseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(std::chrono::hours::max()).is_never());
  EXPECT_FALSE(Deadline::after(std::chrono::hours(24 * 365 * 50)).is_never());
}

TEST(Deadline, InThePastHasPassed) {
  const Deadline past = Deadline::after(-seconds(1));
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.left(), nanoseconds(0));
  EXPECT_EQ(past.poll_ms(), 0);
  EXPECT_EQ(past.slice(seconds(1)).tv_sec, 0);
  EXPECT_EQ(past.slice(seconds(1)).tv_nsec, 0);
  EXPECT_TRUE(Deadline::after(seconds(0)).passed());
}

TEST(Deadline, ShortensAWaitOnlyWhereItComesFirst) {
  const Deadline deadline = Deadline::after(seconds(100));
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left(), seconds(90));
  EXPECT_LE(deadline.left(), seconds(100));
  EXPECT_EQ(deadline.poll_ms(), 60'000);
  EXPECT_GT(deadline.poll_ms(Milliseconds(1'000'000)), 90'000);
  EXPECT_EQ(deadline.slice(Milliseconds(1500)).tv_sec, 1);
  EXPECT_EQ(deadline.slice(Milliseconds(1500)).tv_nsec, 500'000'000);
  EXPECT_GE(deadline.slice(seconds(1000)).tv_sec, 90);
  EXPECT_LE(deadline.slice(seconds(1000)).tv_sec, 100);
}

// A wait rounded down to 0 ms would spin until the deadline.
TEST(Deadline, RoundsPollUp) {
  const Deadline deadline = Deadline::after(Milliseconds(50));
  const int wait = deadline.poll_ms();
  if (!deadline.passed()) {
    EXPECT_GE(wait, 1);
  }
  EXPECT_LE(wait, 50);
}

TEST(Deadline, EarlierOfTwo) {
  const Deadline soon = Deadline::after(seconds(1));
  const Deadline late = Deadline::after(seconds(9));
  EXPECT_EQ(soon.earlier(late).at(), soon.at());
  EXPECT_EQ(late.earlier(soon).at(), soon.at());
  EXPECT_EQ(Deadline::never().earlier(late).at(), late.at());
}

}  // namespace
}  // namespace ranklink
