#include "launch/ending.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"

namespace ranklink {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RankEnd exited(int rank, int code) { return {.rank = rank, .wait_status = code << 8}; }
RankEnd killed(int rank, int signal) { return {.rank = rank, .wait_status = signal}; }
RankEnd by_us(RankEnd end) {
  end.by_us = true;
  return end;
}

TEST(Judge, AllWell) {
  const Judgement judgement = judge({.ends = {exited(1, 0), exited(0, 0)}});
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_FALSE(judgement.failure);
}

TEST(Judge, TheFirstBadEndCounts) {
  const Judgement judgement =
      judge({.ends = {exited(0, 0), exited(3, 7), exited(1, 1), by_us(killed(2, SIGTERM))}});
  EXPECT_EQ(judgement.exit_code, 7);
  EXPECT_EQ(judgement.failure->rank(), 3);
}

TEST(Judge, EndsByTheLauncherDoNotCount) {
  const Judgement judgement = judge({.ends = {by_us(killed(2, SIGTERM)), exited(1, 5)}});
  EXPECT_EQ(judgement.exit_code, 5);
}

TEST(Judge, ThePublishedRankPrecedesTheFirst) {
  const Error published({.code = ErrorCode::rank_failed, .rank = 1, .cause = "out of data"});
  RankEnd end = exited(1, 9);
  end.last_lines = "out of data";
  const Judgement judgement = judge({.ends = {exited(0, 1), end}, .published = published});
  EXPECT_EQ(judgement.exit_code, 9);
  EXPECT_EQ(judgement.failure->code(), ErrorCode::rank_failed);
  EXPECT_EQ(judgement.failure->context(), "its process: exited with code 9");
}

TEST(Judge, WhatIsKnownAtLastCompletesWhatTheRanksWereTold) {
  const Error published({.code = ErrorCode::rank_killed,
                         .rank = 1,
                         .step = "all_reduce #4",
                         .cause = "killed by SIGKILL (signal 9)"});
  RankEnd end = killed(1, SIGKILL);
  end.oom = "the killer struck";
  const Judgement judgement = judge({.ends = {exited(0, 1), end}, .published = published});
  EXPECT_EQ(judgement.exit_code, 137);
  EXPECT_EQ(judgement.failure->cause(), "killed by SIGKILL (signal 9); the killer struck");
  EXPECT_EQ(judgement.failure->step(), "all_reduce #4");
}

TEST(Judge, APublishedRankThatTheLauncherEndedLendsNoCode) {
  // Rank 1 hung: rank 0 said so and exited, then the launcher ended rank 1.
  const Error published({.code = ErrorCode::op_timeout, .rank = 1, .cause = "did not arrive"});
  const Judgement judgement =
      judge({.ends = {exited(0, 4), by_us(killed(1, SIGKILL))}, .published = published});
  EXPECT_EQ(judgement.exit_code, 4);
  EXPECT_EQ(judgement.failure->code(), ErrorCode::op_timeout);
}

TEST(Judge, APublishedFailureIsNeverASuccess) {
  const Error published({.code = ErrorCode::rank_exited, .rank = 0});
  const Judgement judgement = judge({.ends = {exited(0, 0), exited(1, 0)}, .published = published});
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_EQ(judgement.failure->code(), ErrorCode::rank_exited);
}

TEST(Judge, InterventionsPrecede) {
  const Error why({.code = ErrorCode::interrupted});
  const Judgement judgement =
      judge({.ends = {killed(0, SIGINT)}, .intervened = why, .intervened_code = 130});
  EXPECT_EQ(judgement.exit_code, 130);
  EXPECT_EQ(judgement.failure->code(), ErrorCode::interrupted);
}

TEST(EndSchedule, TermThenKillOnceEach) {
  EndSchedule schedule;
  const auto now = EndSchedule::Clock::now();
  EXPECT_EQ(schedule.due(now), 0);
  EXPECT_TRUE(schedule.next().is_never());
  schedule.plan(now, seconds(1), seconds(3));
  EXPECT_EQ(schedule.due(now + milliseconds(999)), 0);
  EXPECT_EQ(schedule.due(now + seconds(1)), SIGTERM);
  EXPECT_EQ(schedule.due(now + seconds(2)), 0);
  EXPECT_EQ(schedule.due(now + seconds(3)), SIGKILL);
  EXPECT_EQ(schedule.due(now + seconds(9)), 0);
  EXPECT_TRUE(schedule.next().is_never());
}

TEST(EndSchedule, IsOnlyBroughtForward) {
  EndSchedule schedule;
  const auto now = EndSchedule::Clock::now();
  schedule.plan(now, seconds(1), seconds(3));
  schedule.plan(now, seconds(5), seconds(7));
  EXPECT_EQ(schedule.due(now + seconds(1)), SIGTERM);
  schedule.plan(now + seconds(1), milliseconds(0), milliseconds(0));
  EXPECT_EQ(schedule.due(now + seconds(1)), SIGKILL);
}

}  // namespace
}  // namespace ranklink
