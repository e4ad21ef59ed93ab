#include "autopsy/rank_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ranklink {
namespace {

using testing::HasSubstr;

RankEnd exited(int rank, int code) { return {.rank = rank, .wait_status = code << 8}; }
RankEnd killed(int rank, int signal) { return {.rank = rank, .wait_status = signal}; }

TEST(RankEnd, ExitCodesAreThoseOfAShell) {
  EXPECT_EQ(exited(0, 0).exit_code(), 0);
  EXPECT_EQ(exited(0, 3).exit_code(), 3);
  EXPECT_EQ(killed(0, SIGSEGV).exit_code(), 139);
  EXPECT_FALSE(exited(0, 0).is_bad());
  EXPECT_TRUE(killed(0, SIGTERM).is_bad());
}

TEST(RankEnd, ReasonsSayHow) {
  RankEnd end = exited(2, 3);
  end.last_lines = "a | b";
  EXPECT_EQ(end.reason().code(), ErrorCode::rank_exited);
  EXPECT_EQ(end.reason().rank(), 2);
  EXPECT_EQ(end.reason().cause(), "exited with code 3; last lines of its stderr: a | b");

  const Error crash = killed(1, SIGSEGV).reason();
  EXPECT_EQ(crash.code(), ErrorCode::rank_killed);
  EXPECT_EQ(crash.cause(), "killed by SIGSEGV (signal 11)");
  EXPECT_FALSE(crash.remedy().empty());

  RankEnd oom = killed(1, SIGKILL);
  oom.oom = "the killer struck";
  EXPECT_EQ(oom.reason().cause(), "killed by SIGKILL (signal 9); the killer struck");
  EXPECT_THAT(oom.reason().remedy(), HasSubstr("memory limit"));
  RankEnd ended = killed(1, SIGTERM);
  ended.by_us = true;
  EXPECT_THAT(ended.reason().cause(), HasSubstr("by its launcher"));
}

TEST(RankEnd, SaysWhenNothingIsKnown) {
  const RankEnd end{.rank = 4};
  EXPECT_FALSE(end.is_known());
  EXPECT_TRUE(end.is_bad());
  EXPECT_EQ(end.exit_code(), 1);
  EXPECT_EQ(end.reason().code(), ErrorCode::rank_died);
  EXPECT_THAT(end.reason().cause(), HasSubstr("isn't known"));
}

TEST(RankEnd, ACrashTellsMoreThanAWaitStatus) {
  RankEnd end{.rank = 1,
              .crash = Crash{.facts = {.signal = SIGSEGV, .code = SEGV_MAPERR},
                             .backtrace = "bring_up+0x1c (libvendor.so), main+0x40 (train)"}};
  EXPECT_TRUE(end.is_known());
  EXPECT_EQ(end.exit_code(), 139);
  EXPECT_EQ(end.reason().code(), ErrorCode::rank_killed);
  EXPECT_EQ(end.reason().cause(),
            "killed by SIGSEGV (signal 11): it called a function that it doesn't have (address 0); "
            "backtrace: bring_up+0x1c (libvendor.so), main+0x40 (train)");
  EXPECT_THAT(end.reason().remedy(), HasSubstr("library"));

  end.wait_status = SIGKILL;  // by a debugger, or what else takes over
  EXPECT_EQ(end.signal(), SIGSEGV);
  end.crash->facts.signal = SIGABRT;
  EXPECT_THAT(end.reason().cause(), HasSubstr("killed by SIGABRT (signal 6); backtrace: "));
}

TEST(SignalText, NamesTheSignal) { EXPECT_EQ(signal_text(SIGBUS), "SIGBUS (signal 7)"); }

}  // namespace
}  // namespace ranklink
