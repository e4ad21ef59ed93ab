#include "base/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

namespace ranklink {
namespace {

std::uint64_t address_of(const void* data) {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
}

TEST(ReadProcessMemory, CopiesWhatTheOtherProcessHas) {
  std::vector<std::byte> data(100'001, std::byte{1});
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    data.assign(data.size(), std::byte{2});  // in the child's memory only
    data.back() = std::byte{3};
    if (::write(ready[1], "x", 1) != 1 || ::read(done[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(0);
  }
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  std::vector<std::byte> copy(data.size());
  const int error = read_process_memory(child, address_of(data.data()), copy.data(), copy.size());
  ASSERT_EQ(::write(done[1], "x", 1), 1);
  ::waitpid(child, nullptr, 0);
  for (const int end : {ready[0], ready[1], done[0], done[1]}) ::close(end);
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "process_vm_readv is refused here";
  ASSERT_EQ(error, 0);
  EXPECT_EQ(copy.front(), std::byte{2});
  EXPECT_EQ(copy.back(), std::byte{3});
  EXPECT_EQ(data.front(), std::byte{1});
}

TEST(WriteProcessMemory, ReachesTheOtherProcess) {
  const std::vector<std::byte> data(100'001, std::byte{5});
  std::vector<std::byte> theirs(data.size());
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    if (::write(ready[1], "x", 1) != 1 || ::read(done[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(theirs == data ? 0 : 2);
  }
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const int error =
      write_process_memory(child, address_of(theirs.data()), data.data(), data.size());
  ASSERT_EQ(::write(done[1], "x", 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const int end : {ready[0], ready[1], done[0], done[1]}) ::close(end);
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "process_vm_writev is refused here";
  ASSERT_EQ(error, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(theirs.front(), std::byte{0});
}

TEST(ReadProcessMemory, SaysWhyItCannot) {
  std::array<std::byte, 8> to{};
  EXPECT_EQ(read_process_memory(::getpid(), 0, to.data(), 0), 0);
  const int error = read_process_memory(::getpid(), 0, to.data(), to.size());
  EXPECT_TRUE(error == EFAULT || error == EPERM || error == ENOSYS) << error;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(read_process_memory(child, address_of(to.data()), to.data(), to.size()), 0);
}

}  // namespace
}  // namespace ranklink
