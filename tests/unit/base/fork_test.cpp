#include "base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace ranklink {
namespace {

// Ends a child with what `child` gives, and gives that to its parent.
template <typename Child>
int in_child(const Child& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(ForkMark, TellsAChildFromItsParent) {
  const ForkMark mark;
  EXPECT_FALSE(mark.forked());
  EXPECT_EQ(in_child([&] { return mark.forked() ? 1 : 0; }), 1);
  EXPECT_FALSE(mark.forked());
}

TEST(ForkMark, TellsAGrandchildToo) {
  const ForkMark mark;
  EXPECT_EQ(in_child([&] { return in_child([&] { return mark.forked() ? 1 : 0; }); }), 1);
}

// What a child makes for itself is its own.
TEST(ForkMark, CanBeMadeInAChild) {
  EXPECT_EQ(in_child([] {
              const ForkMark mark;
              return mark.forked() ? 1 : 0;
            }),
            0);
}

TEST(ForkMark, IsTheSameForAllThreads) {
  const ForkMark mark;
  bool forked = true;
  std::thread([&] { forked = mark.forked(); }).join();
  EXPECT_FALSE(forked);
}

}  // namespace
}  // namespace ranklink
