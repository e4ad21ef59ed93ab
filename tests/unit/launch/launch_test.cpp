#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "launch_in_child.h"

namespace ranklink {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A number of seconds that no other process sleeps.
std::string unusual_sleep(int which) { return fmt::format("{}.{}", 300 + which, ::getpid()); }

TEST(Launch, GivesRanksTheirEnvironment) {
  LaunchTest test = script(
      2,
      "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR\";"
      "test ${#RANKLINK_SECRET} = 64 && test -S /proc/self/fd/$RANKLINK_LAUNCHER_FD && echo sock;"
      "test -n \"$MASTER_PORT\" && echo port; echo \"r=$RANKLINK_RENDEZVOUS\"; echo "
      "\"m=$RANKLINK_MECHANISM\";"
      "echo \"u=$RANKLINK_OP_TIMEOUT.\"");
  test.before = [] { ::setenv("RANKLINK_RENDEZVOUS", "tcp://10.0.0.1:1", 1); };
  test.options.settings.set("RANKLINK_MECHANISM", "fd+pidfd", Origin::command_line);
  test.options.settings.set("RANKLINK_OP_TIMEOUT", "7s", Origin::environment);
  const Outcome outcome = launch_in_child(test);
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* line :
       {"[0] 0/2 0/2 127.0.0.1\n", "[1] 1/2 1/2 127.0.0.1\n", "[0] sock\n", "[1] sock\n",
        "[1] port\n", "[0] r=\n", "[1] m=fd+pidfd\n", "[0] u=.\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
}

TEST(Launch, RanksInheritNothingElse) {
  LaunchTest test = script(1, "ls /proc/$$/fd; ulimit -n; exec grep SigBlk /proc/self/status");
  test.before = [] {
    const rlimit files{.rlim_cur = 200, .rlim_max = 4000};
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::dup2(1, 150);  // not close-on-exec
  };
  const Outcome outcome = launch_in_child(test);
  EXPECT_THAT(outcome.out, HasSubstr("[0] 0\n[0] 1\n[0] 2\n[0] 60\n[0] 200\n"));
  EXPECT_THAT(outcome.out, HasSubstr("0000000000000000\n"));
}

TEST(Launch, KeepsStreamsApartAndEndsLastLines) {
  const Outcome outcome =
      launch_in_child(script(1, "echo one; echo two >&2; printf three; printf four >&2"));
  EXPECT_EQ(outcome.out, "[0] one\n[0] three\n");
  EXPECT_EQ(outcome.err, "[0] two\n[0] four\n");
}

TEST(Launch, WithoutPrefixLeavesOutputAlone) {
  LaunchTest test = script(2, "echo $RANK");
  test.options.prefix = false;
  EXPECT_THAT(launch_in_child(test).out, AnyOf("0\n1\n", "1\n0\n"));
}

TEST(Launch, HandsMessagesOver) {
  LaunchTest test = script(2, "echo \"hello from $RANK\" >/proc/self/fd/$RANKLINK_MESSAGE_FD");
  test.options.capture = true;
  test.options.on_message = [](int rank, const std::string& line) {
    const std::string text = fmt::format("{}: {}\n", rank, line);
    EXPECT_GT(::write(1, text.data(), text.size()), 0);
  };
  const Outcome outcome = launch_in_child(test);
  EXPECT_THAT(outcome.out, HasSubstr("0: hello from 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("1: hello from 1\n"));
}

TEST(Launch, ReturnsTheCodeOfTheRankThatFailed) {
  const Outcome outcome =
      launch_in_child(script(3, "test $RANK = 1 || exec sleep 30; echo 'no luck' >&2; exit 7"));
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.code, "rank_exited");
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.cause, "exited with code 7; last lines of its stderr: no luck");
  EXPECT_LT(outcome.seconds, 5);
}

TEST(Launch, NamesTheSignalThatEndedARank) {
  const Outcome outcome = launch_in_child(script(2, "test $RANK = 0 || kill -SEGV $$; sleep 30"));
  EXPECT_EQ(outcome.exit_code, 128 + SIGSEGV);
  EXPECT_EQ(outcome.code, "rank_killed");
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_THAT(outcome.cause, HasSubstr("SIGSEGV (signal 11)"));
}

TEST(Launch, EndsARankThatIgnoresTerm) {
  const std::string sleep = unusual_sleep(1);
  const Outcome outcome = launch_in_child(script(
      2, fmt::format("test $RANK = 0 && exit 5; trap '' TERM; while :; do sleep {}; done", sleep)));
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(processes_with(sleep), IsEmpty());
}

TEST(Launch, EndsStrayGrandchildren) {
  const std::string sleep = unusual_sleep(2);
  const Outcome outcome = launch_in_child(script(
      2, fmt::format("setsid sleep {0} & setsid sh -c 'sleep {0} & sleep {0}' & exit 0", sleep)));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_LT(outcome.seconds, 3);
  EXPECT_THAT(processes_with(sleep), IsEmpty());
}

TEST(Launch, LetsStraysFinishTheirLastWords) {
  EXPECT_THAT(launch_in_child(script(1, "(sleep 0.05; echo late) & echo early")).out,
              HasSubstr("[0] late\n"));
}

TEST(Launch, DeadlineEndsTheJob) {
  LaunchTest test = script(2, "exec sleep 30");
  test.options.settings.set("RANKLINK_RUN_TIMEOUT", "300ms", Origin::program);
  const Outcome outcome = launch_in_child(test);
  EXPECT_EQ(outcome.exit_code, 124);
  EXPECT_EQ(outcome.code, "run_timeout");
  EXPECT_THAT(outcome.cause, HasSubstr("rank 1 (pid "));
  EXPECT_LT(outcome.seconds, 2);
}

TEST(Launch, CtrlCReachesRanks) {
  LaunchTest test =
      script(2, "trap 'echo tidy; exit 3' INT; echo ready; while :; do sleep 0.02; done");
  test.meddle = [](pid_t launcher) { ::kill(launcher, SIGINT); };
  const Outcome outcome = launch_in_child(test);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.code, "interrupted");
  EXPECT_THAT(outcome.out, HasSubstr("[0] tidy\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] tidy\n"));
  EXPECT_LT(outcome.seconds, 3);
}

TEST(Launch, ASecondCtrlCKills) {
  const std::string sleep = unusual_sleep(3);
  LaunchTest test =
      script(2, fmt::format("trap '' INT TERM; echo ready; while :; do sleep {}; done", sleep));
  test.meddle = [](pid_t launcher) {
    ::kill(launcher, SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(launcher, SIGINT);
  };
  const Outcome outcome = launch_in_child(test);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_LT(outcome.seconds, 2.5);
  EXPECT_THAT(processes_with(sleep), IsEmpty());
}

TEST(Launch, PassesOtherSignalsOn) {
  LaunchTest test = script(2, "trap 'exit 0' USR1; echo ready; while :; do sleep 0.02; done");
  test.meddle = [](pid_t launcher) { ::kill(launcher, SIGUSR1); };
  EXPECT_EQ(launch_in_child(test).exit_code, 0);
}

TEST(Launch, RanksDieWithTheirLauncher) {
  const std::string sleep = unusual_sleep(4);
  const std::string text = fmt::format("echo ready; exec sleep {}", sleep);
  for (const char* kinds : {"", "pid,user"}) {
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      LaunchTest test = script(2, text);
      test.options.isolation = parse_isolation(kinds);
      test.options.prefix = false;
      if (!std::freopen("/dev/null", "w", stdout)) ::_exit(1);
      try {
        launch(test.options);
      } catch (const Error&) {
      }
      ::_exit(0);
    }
    const auto wait_until = [&](bool some) {
      for (int i = 0; i < 400 && processes_with(sleep).empty() == some; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    };
    wait_until(true);
    ::kill(launcher, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    wait_until(false);
    EXPECT_THAT(processes_with(sleep), IsEmpty()) << "isolation: " << kinds;
  }
}

TEST(Launch, AMissingProgramIsAnErrorWithARemedy) {
  LaunchTest test = script(3, "");
  test.options.argv = {"no-such-program-anywhere"};
  Outcome outcome = launch_in_child(test);
  EXPECT_TRUE(outcome.threw);
  EXPECT_EQ(outcome.code, "program_unstartable");
  EXPECT_THAT(outcome.cause, HasSubstr("no-such-program-anywhere: ENOENT"));
  EXPECT_THAT(outcome.remedy, HasSubstr("PATH"));

  test.options.argv = {"/etc/passwd"};
  outcome = launch_in_child(test);
  EXPECT_TRUE(outcome.threw);
  EXPECT_THAT(outcome.cause, HasSubstr("EACCES"));
  EXPECT_THAT(outcome.remedy, HasSubstr("chmod +x"));
}

TEST(Launch, RefusesNonsense) {
  LaunchTest test = script(0, "exit");
  EXPECT_EQ(launch_in_child(test).code, "bad_argument");
  test.options.size = 1;
  test.options.argv.clear();
  EXPECT_EQ(launch_in_child(test).code, "bad_argument");
}

TEST(Launch, WorksWithClosedStandardStreams) {
  LaunchTest test = script(2, "echo out; echo err >&2");
  test.before = [] {
    for (int fd = 0; fd <= 1; ++fd) ::close(fd);
  };
  const Outcome outcome = launch_in_child(test);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("[1] err\n"));
}

TEST(Launch, StartsManyRanksWithALowLimit) {
  LaunchTest test = script(100, "");
  test.options.argv = {"true"};
  test.before = [] {
    const rlimit files{.rlim_cur = 64, .rlim_max = 2000};
    ::setrlimit(RLIMIT_NOFILE, &files);
  };
  EXPECT_EQ(launch_in_child(test).exit_code, 0);
}

TEST(Launch, SaysThatTheDescriptorLimitIsTooLow) {
  LaunchTest test = script(100, "");
  test.options.argv = {"true"};
  test.before = [] {
    const rlimit files{.rlim_cur = 100, .rlim_max = 100};
    ::setrlimit(RLIMIT_NOFILE, &files);
  };
  const Outcome outcome = launch_in_child(test);
  EXPECT_TRUE(outcome.threw);
  EXPECT_EQ(outcome.code, "descriptors_short");
  EXPECT_THAT(outcome.remedy, Not(IsEmpty()));
}

}  // namespace
}  // namespace ranklink
