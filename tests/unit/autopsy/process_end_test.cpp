#include "autopsy/process_end.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "inspect/facts.h"

namespace ranklink {
namespace {

pid_t start_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  return child;
}

// Waits until it has ended, and leaves it there.
void await_end(pid_t child) {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
}

// PIDFD_GET_INFO with PIDFD_INFO_EXIT.
bool kernel_remembers_ends() {
  utsname name{};
  ::uname(&name);
  int major = 0;
  int minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  return major > 6 || (major == 6 && minor >= 15);
}

TEST(ProcessState, IsThatOfProc) {
  const pid_t child = start_child();
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_EQ(process_state(child), 'T');
  ::kill(child, SIGKILL);
  await_end(child);
  EXPECT_EQ(process_state(child), 'Z');
  ::waitpid(child, &status, 0);
  EXPECT_EQ(process_state(child), '?');
  EXPECT_EQ(process_state(0), '?');
}

TEST(ProcessWatch, KnowsTheEndBeforeAndAfterItIsReaped) {
  const pid_t child = start_child();
  const ProcessWatch watch(child);
  EXPECT_EQ(watch.pid(), child);
  EXPECT_FALSE(watch.wait_status());
  ::kill(child, SIGKILL);
  await_end(child);
  EXPECT_EQ(watch.wait_status(), SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!kernel_remembers_ends()) GTEST_SKIP() << "this kernel is older than 6.15";
  EXPECT_EQ(watch.wait_status(), SIGKILL);
}

TEST(ProcessWatch, KnowsAnExitCode) {
  for (const int code : {0, 3}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::raise(SIGSTOP);
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    const ProcessWatch watch(child);
    EXPECT_FALSE(watch.wait_status());  // it is stopped, and lives
    ::kill(child, SIGCONT);
    await_end(child);
    EXPECT_EQ(watch.wait_status(), code << 8);
    ::waitpid(child, &status, 0);
  }
}

TEST(ProcessWatch, TakesNoOtherProcessForIt) {
  const pid_t child = start_child();
  const std::uint64_t started = process_start_time(child);
  EXPECT_EQ(ProcessWatch(child, started).pid(), child);
  EXPECT_EQ(ProcessWatch(child, started + 1).pid(), 0);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
}

TEST(ProcessWatch, KnowsNothingOfNobody) {
  EXPECT_FALSE(ProcessWatch().wait_status());
  EXPECT_FALSE(ProcessWatch(0).wait_status());
  EXPECT_EQ(ProcessWatch(-4).pid(), 0);
}

}  // namespace
}  // namespace ranklink
