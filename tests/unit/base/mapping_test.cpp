#include "base/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "expect_error.h"

namespace ranklink {
namespace {

Fd memfd(std::size_t size, unsigned flags, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_TRUE(seals == 0 || ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

TEST(MakeSharedMemory, IsSealedAgainstChangesOfSize) {
  const Fd fd = make_shared_memory("test", 8192);
  EXPECT_EQ(::ftruncate(fd.get(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd.get(), 16384), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(MakeSharedMemory, IsReserved) {
  const std::size_t size = (std::size_t{9} << 20) + 5;  // more than two pieces, and no whole page
  const Fd fd = make_shared_memory("test", size);
  struct stat status {};
  ASSERT_EQ(::fstat(fd.get(), &status), 0);
  EXPECT_EQ(static_cast<std::size_t>(status.st_size), size);
  EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, size);
}

TEST(MakeSharedMemory, SaysThatMemoryIsShort) {
  const std::string message = expect_error(ErrorCode::memory_short, [] {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    const auto old = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
    try {
      make_shared_memory("test", 1 << 20);
    } catch (...) {
      ::setrlimit(RLIMIT_FSIZE, &before);
      std::signal(SIGXFSZ, old);
      throw;
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
  });
  EXPECT_NE(message.find("1048576 bytes"), std::string::npos) << message;
}

// A program with a profiling timer gets signals all the time, and older kernels let each of them
// interrupt a reservation.
TEST(MakeSharedMemory, EndsUnderAStormOfSignals) {
  static volatile std::sig_atomic_t ticks;
  ticks = 0;
  struct sigaction count {};
  struct sigaction before {};
  count.sa_handler = [](int) { ticks = ticks + 1; };
  ASSERT_EQ(::sigaction(SIGALRM, &count, &before), 0);
  const itimerval often{.it_interval = {0, 5000}, .it_value = {0, 1000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  std::string failure;
  try {
    for (int i = 0; i < 20 && ticks < 5; ++i) make_shared_memory("test", 64u << 20);
  } catch (const Error& error) {
    failure = error.what();
  }
  const itimerval off{};
  ::setitimer(ITIMER_REAL, &off, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(failure, "");
  EXPECT_GT(ticks, 0);
}

TEST(CheckSharedMemory, TakesWhatMakeSharedMemoryMade) {
  const Fd fd = make_shared_memory("test", 8192);
  EXPECT_NO_THROW(check_shared_memory(fd.get(), 8192));
  EXPECT_NO_THROW(check_shared_memory(fd.get(), 100));
  const std::string message =
      expect_error(ErrorCode::protocol_violation, [&] { check_shared_memory(fd.get(), 8193); });
  EXPECT_NE(message.find("8192 bytes"), std::string::npos) << message;
}

TEST(CheckSharedMemory, RefusesWhatItsSenderCouldShrink) {
  const auto expect_refused = [](const Fd& fd) {
    expect_error(ErrorCode::protocol_violation, [&] { check_shared_memory(fd.get(), 4096); });
  };
  expect_refused(memfd(4096, 0, 0));
  expect_refused(memfd(4096, MFD_ALLOW_SEALING, 0));
  expect_refused(memfd(4096, MFD_ALLOW_SEALING, F_SEAL_GROW | F_SEAL_SEAL));
  expect_refused(memfd(4096, MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW));
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  expect_refused(Fd(ends[0]));
  ::close(ends[1]);
}

TEST(CheckSharedMemory, RefusesAClosedDescriptor) {
  expect_error(ErrorCode::system_call, [] { check_shared_memory(-1, 1); });
}

TEST(Mapping, OfOneDescriptorShowsTheSameBytesTwice) {
  const Fd fd = make_shared_memory("test", 4096);
  const Mapping a(fd.get(), 4096);
  const Mapping b(fd.get(), 4096);
  ASSERT_NE(a.data(), b.data());
  EXPECT_EQ(a.size(), 4096u);
  a.data()[4095] = std::byte{42};
  EXPECT_EQ(b.data()[4095], std::byte{42});
}

TEST(Mapping, MovesAndUnmapsOnce) {
  const Fd fd = make_shared_memory("test", 4096);
  Mapping a(fd.get(), 4096);
  std::byte* const at = a.data();
  Mapping b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(b.data(), at);
  {
    Mapping c;
    c = std::move(b);
    EXPECT_EQ(c.data(), at);
    EXPECT_FALSE(b);
  }
  unsigned char resident;
  EXPECT_EQ(::mincore(at, 4096, &resident), -1) << "still mapped";
}

TEST(Mapping, SaysWhyItFailed) {
  const std::string message = expect_error(ErrorCode::system_call, [] { Mapping(-1, 4096); });
  EXPECT_NE(message.find("EBADF"), std::string::npos) << message;
}

}  // namespace
}  // namespace ranklink
