#include "base/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <new>
#include <string>
#include <thread>

namespace ranklink {
namespace {

using std::chrono::seconds;

struct Page {
  FutexWord word{0};
  std::atomic<bool> ready{false};
};

// A process sleeps when the state in its stat reads S; the name before it may hold anything.
bool sleeps(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

TEST(Futex, WakesAnotherProcess) {
  void* memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Page& page = *new (memory) Page;
  const auto slice = seconds(2);
  const pid_t child = ::fork();
  if (child == 0) {
    page.ready = true;
    const auto start = Deadline::Clock::now();
    futex_wait(page.word, 0, Deadline::never(), slice);
    const bool woken = Deadline::Clock::now() - start < slice * 3 / 4;
    ::_exit(woken && page.word == 1 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  const Deadline deadline = Deadline::after(slice);
  while (!(page.ready && sleeps(child)) && !deadline.passed()) std::this_thread::yield();
  page.word = 1;
  futex_wake_all(page.word);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the wake didn't arrive";
  ::munmap(memory, sizeof(Page));
}

TEST(Futex, DoesNotSleepOnAnotherValue) {
  const FutexWord word{7};
  const auto start = Deadline::Clock::now();
  futex_wait(word, 6, Deadline::never(), seconds(60));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

TEST(Futex, SleepsNoLongerThanItsSlice) {
  const FutexWord word{7};
  const auto start = Deadline::Clock::now();
  futex_wait(word, 7, Deadline::never(), Milliseconds(20));
  EXPECT_GE(Deadline::Clock::now() - start, Milliseconds(20));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

TEST(Futex, DoesNotSleepPastTheDeadline) {
  const FutexWord word{7};
  futex_wait(word, 7, Deadline::after(Milliseconds(20)), seconds(60));
  const auto start = Deadline::Clock::now();
  futex_wait(word, 7, Deadline::after(-seconds(1)), seconds(60));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

}  // namespace
}  // namespace ranklink
