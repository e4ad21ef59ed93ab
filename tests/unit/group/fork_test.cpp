// A group in a child of the process that made it.

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "group_threads.h"

namespace ranklink {
namespace {

// Whether `action` throws Error(group_closed), in a child; 0 if so.
template <typename Action>
int is_refused(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == ErrorCode::group_closed ? 0 : 1;
  }
  return 2;
}

TEST(ForkedGroup, IsRefusedInTheChildAndGoesOnInItsParent) {
  run_groups_well(1, {}, [](Group& group) {
    std::array<float, 4> data = {1, 2, 3, 4};
    const Call call{Collective::all_reduce, data.data(), data.data(), data.size(), DataType::f32};
    const Work work = group.start(call);
    work.wait();
    const pid_t child = ::fork();
    if (child == 0) {
      int wrong = is_refused([&] { group.run(call); });
      wrong += is_refused([&] { group.start(call); });
      wrong += is_refused([&] { group.barrier(); });
      wrong += is_refused([&] { group.split(0); });
      wrong += is_refused([&] { group.make_shared_buffer(4096); });
      wrong += is_refused([&] { work.wait(); });
      wrong += group.rank() + (group.size() - 1);
      group.fail("in the child");  // is nobody's business
      ::_exit(wrong);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    group.all_reduce(data);
    EXPECT_EQ(data[3], 4);
  });
}

// Neither does the end of the child's copy take the parent's group away.
TEST(ForkedGroup, OutlivesItsCopies) {
  run_groups_well(1, {}, [](Group& group) {
    const pid_t child = ::fork();
    if (child == 0) {
      { const Group gone = std::move(group); }
      ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    group.barrier();
    auto part = group.split(0);
    ASSERT_TRUE(part);
    part->barrier();
  });
}

}  // namespace
}  // namespace ranklink
