#include "autopsy/crash_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/mapping.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};

template <typename T>
T* hidden(T* pointer) {  // from a compiler that would see that it leads nowhere
  asm volatile("" : "+r"(pointer));
  return pointer;
}

// What the child shares with the test.
struct Shared {
  CrashSlot slot;
  std::atomic<int> told;
};

// Runs things that end in a crash in child processes.
class CrashWatchTest : public testing::Test {
 protected:
  CrashWatchTest()
      : memory_(make_shared_memory("crash-test", sizeof(Shared))),
        mapping_(memory_.get(), sizeof(Shared)),
        shared_(*new (mapping_.data()) Shared{}) {}

  static void tell(void* shared) { ++static_cast<Shared*>(shared)->told; }

  // Returns the wait status; what the child printed is in printed_.
  int child(const std::function<void()>& body) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      // Those of a sanitizer would keep the watch away.
      for (const int signal : kSignals) ::signal(signal, SIG_DFL);
      body();
      ::_exit(0);
    }
    const Fd read(ends[0]);
    ::close(ends[1]);
    char piece[4096];
    for (ssize_t n; (n = ::read(read.get(), piece, sizeof piece)) > 0;) {
      printed_.append(piece, static_cast<std::size_t>(n));
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  int watched_child(const std::function<void()>& body) {
    return child([&] {
      const CrashWatch watch(shared_.slot, tell, &shared_);
      use_alternate_stack();
      body();
    });
  }
  Crash crash() const {
    const auto crash = shared_.slot.read();
    EXPECT_TRUE(crash) << printed_;
    return crash.value_or(Crash{});
  }

  Fd memory_;
  Mapping mapping_;
  Shared& shared_;
  std::string printed_;
};

// A sanitizer would see it coming.
__attribute__((no_sanitize("undefined"))) void call_nothing() {
  hidden(static_cast<void (*)()>(nullptr))();
}

TEST_F(CrashWatchTest, TellsACallOfNothing) {
  const int status = watched_child([] {
    call_nothing();
    asm volatile("");  // no tail call, or the caller would not be on the stack
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_TRUE(crash().is_bad_call());
  EXPECT_EQ(crash().facts.address, 0u);
  // The frame that called is there, and those above it.
  EXPECT_THAT(crash().backtrace, StartsWith("unit_tests+0x"));
  EXPECT_THAT(crash().backtrace, HasSubstr("__libc_start_main"));
  EXPECT_TRUE(shared_.slot.is_complete());
  EXPECT_EQ(shared_.told, 1);
  EXPECT_THAT(printed_, HasSubstr("ranklink: crash: SIGSEGV, address 0x0, instruction at 0x0\n"));
  EXPECT_THAT(printed_, HasSubstr("ranklink: crash: " + crash().backtrace));
}

TEST_F(CrashWatchTest, TellsTheAddress) {
  EXPECT_EQ(WTERMSIG(watched_child([] { *hidden(reinterpret_cast<volatile int*>(0x1230)) = 1; })),
            SIGSEGV);
  EXPECT_EQ(crash().facts.address, 0x1230u);
  EXPECT_FALSE(crash().is_bad_call());
  EXPECT_THAT(crash().backtrace, StartsWith("unit_tests+0x"));
}

int use_up_the_stack(int depth) {
  volatile char room[1024];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : use_up_the_stack(depth + 1) + room[0];
}

TEST_F(CrashWatchTest, HasAStackWhereTheThreadHasNone) {
  EXPECT_EQ(WTERMSIG(watched_child([] { ::_exit(use_up_the_stack(0)); })), SIGSEGV);
  EXPECT_THAT(crash().text(), HasSubstr("its stack is used up"));
  EXPECT_THAT(crash().backtrace, HasSubstr("again and again"));
}

TEST_F(CrashWatchTest, TellsAnAbortAndItsThread) {
  const int status = watched_child([] {
    std::thread([] {
      ::pthread_setname_np(::pthread_self(), "watcher");
      std::abort();
    }).join();
  });
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_EQ(crash().text(), "in thread watcher");
  EXPECT_THAT(crash().backtrace, HasSubstr("abort+0x"));
}

TEST_F(CrashWatchTest, TellsWhoSentTheSignal) {
  const pid_t me = ::getpid();
  EXPECT_EQ(WTERMSIG(watched_child([&] {
              const pid_t child = ::getpid();
              if (::fork() == 0) {
                ::kill(child, SIGBUS);
                ::_exit(0);
              }
              for (;;) ::pause();
            })),
            SIGBUS);
  EXPECT_NE(crash().facts.sender, 0);
  EXPECT_NE(crash().facts.sender, me);
  EXPECT_THAT(crash().text(), HasSubstr("sent by process"));
}

TEST_F(CrashWatchTest, TellsOfTheFirstOfManyThreads) {
  for (int round = 0; round < 20; ++round) {
    shared_.slot.stage = CrashSlot::none;
    const int status = watched_child([] {
      std::atomic<int> ready{0};
      std::array<std::thread, 8> threads;
      for (auto& thread : threads) {
        thread = std::thread([&] {
          ++ready;
          while (ready < 8) {
          }
          call_nothing();
        });
      }
      for (auto& thread : threads) thread.join();
    });
    EXPECT_EQ(WTERMSIG(status), SIGSEGV);
    EXPECT_TRUE(shared_.slot.is_complete());
    EXPECT_TRUE(crash().is_bad_call());
  }
}

TEST_F(CrashWatchTest, IsNotHeldUpByAStderrThatNobodyReads) {
  const int status = watched_child([] {
    int full[2];
    if (::pipe(full) != 0) ::_exit(1);
    ::fcntl(full[1], F_SETFL, O_NONBLOCK);
    const char piece[4096] = {};
    while (::write(full[1], piece, sizeof piece) > 0) {
    }
    ::fcntl(full[1], F_SETFL, 0);
    ::dup2(full[1], STDERR_FILENO);
    call_nothing();
  });
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_TRUE(shared_.slot.is_complete());
  EXPECT_EQ(shared_.told, 1);
}

TEST_F(CrashWatchTest, EndsByItsOwnSignalWithAClosedStderr) {
  const int status = watched_child([] {
    int broken[2];
    if (::pipe(broken) != 0) ::_exit(1);
    ::close(broken[0]);
    ::dup2(broken[1], STDERR_FILENO);
    call_nothing();
  });
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_TRUE(shared_.slot.is_complete());
}

TEST_F(CrashWatchTest, LeavesTheProgramsOwnHandlers) {
  const int status = child([&] {
    ::signal(SIGSEGV, [](int) { ::_exit(77); });
    const CrashWatch watch(shared_.slot, tell, &shared_);
    call_nothing();
  });
  EXPECT_EQ(WEXITSTATUS(status), 77);
  EXPECT_FALSE(shared_.slot.read());
}

TEST_F(CrashWatchTest, LeavesOtherHandlersThatCameLater) {
  const int status = child([&] {
    {
      const CrashWatch watch(shared_.slot, tell, &shared_);
      ::signal(SIGSEGV, [](int) { ::_exit(78); });
    }
    call_nothing();
  });
  EXPECT_EQ(WEXITSTATUS(status), 78);
}

TEST_F(CrashWatchTest, IsGoneWithItsObject) {
  const int status = child([&] {
    { const CrashWatch watch(shared_.slot, tell, &shared_); }
    call_nothing();
  });
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_FALSE(shared_.slot.read());
  EXPECT_EQ(printed_, "");
}

TEST_F(CrashWatchTest, IsNotForForkedProcesses) {
  const int status = watched_child([] {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) call_nothing();
    int its = 0;
    ::waitpid(grandchild, &its, 0);
    ::_exit(WIFSIGNALED(its) && WTERMSIG(its) == SIGSEGV ? 33 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 33);
  EXPECT_FALSE(shared_.slot.read());
  EXPECT_EQ(printed_, "");
}

TEST_F(CrashWatchTest, ServesAForkedProcessThatWatchesItself) {
  const Fd memory = make_shared_memory("crash-test-2", sizeof(Shared));
  const Mapping mapping(memory.get(), sizeof(Shared));
  auto& other = *new (mapping.data()) Shared{};
  watched_child([&] {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      const CrashWatch watch(other.slot, tell, &other);
      call_nothing();
    }
    ::waitpid(grandchild, nullptr, 0);
  });
  EXPECT_FALSE(shared_.slot.read());
  ASSERT_TRUE(other.slot.read());
  EXPECT_TRUE(other.slot.read()->is_bad_call());
}

TEST_F(CrashWatchTest, WritesToAllSlots) {
  const Fd memory = make_shared_memory("crash-test-2", sizeof(Shared));
  const Mapping mapping(memory.get(), sizeof(Shared));
  auto& other = *new (mapping.data()) Shared{};
  watched_child([&] {
    const CrashWatch watch(other.slot, tell, &other);
    call_nothing();
  });
  EXPECT_TRUE(shared_.slot.is_complete());
  EXPECT_TRUE(other.slot.is_complete());
  EXPECT_EQ(other.told, 1);
}

}  // namespace
}  // namespace ranklink
