#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "../base/expect_error.h"
#include "base/mapping.h"
#include "device/device.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

// Pages of this process's own, with contents.
class AdoptTest : public testing::Test {
 protected:
  static constexpr std::size_t kPages = 6;

  AdoptTest() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))), size_(kPages * page_) {
    memory_ = static_cast<std::byte*>(std::aligned_alloc(page_, size_));
    for (std::size_t i = 0; i < size_; ++i) memory_[i] = sample(i);
  }
  ~AdoptTest() override { std::free(memory_); }

  static std::byte sample(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }
  std::span<std::byte> pages(std::size_t first, std::size_t count) const {
    return {memory_ + first * page_, count * page_};
  }
  std::unique_ptr<Memory> adopt(std::span<std::byte> memory) {
    return device_->adopt("adopt-test", memory);
  }
  std::unique_ptr<Memory> import(const Memory& memory) {
    return device_->import_fd(device_->handle(memory), Fd(::dup(device_->export_fd(memory))));
  }
  void expect_samples(const std::byte* memory, std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(memory[i], sample(first + i)) << i;
  }
  void refused(std::span<std::byte> memory, const std::string& text) {
    const std::string message = expect_error(ErrorCode::bad_argument, [&] { adopt(memory); });
    EXPECT_THAT(message, HasSubstr(text));
    EXPECT_THAT(message, HasSubstr("register whole pages of private memory"));
  }

  std::size_t page_;
  std::size_t size_;
  std::byte* memory_;
  std::unique_ptr<Device> device_ = open_device("host", "boot");
};

TEST_F(AdoptTest, KeepsTheContentsBothWays) {
  {
    const auto adopted = adopt(pages(0, kPages));
    EXPECT_EQ(adopted->data(), memory_);
    EXPECT_EQ(adopted->size(), size_);
    expect_samples(memory_, 0, size_);
    memory_[5000] = std::byte{0x77};
  }
  EXPECT_EQ(memory_[5000], std::byte{0x77});
  memory_[5000] = sample(5000);
  expect_samples(memory_, 0, size_);
}

TEST_F(AdoptTest, IsSeenByAnotherMapping) {
  const auto adopted = adopt(pages(0, kPages));
  const auto theirs = import(*adopted);
  ASSERT_EQ(theirs->size(), size_);
  EXPECT_NE(theirs->data(), memory_);
  expect_samples(theirs->data(), 0, size_);
  memory_[0] = std::byte{0x5a};
  EXPECT_EQ(theirs->data()[0], std::byte{0x5a});
  theirs->data()[size_ - 1] = std::byte{0xa5};
  EXPECT_EQ(memory_[size_ - 1], std::byte{0xa5});
}

// What a peer wrote stays when the memory is private again; what it writes then, doesn't come.
TEST_F(AdoptTest, IsPrivateAgainAfterwards) {
  auto adopted = adopt(pages(0, kPages));
  const auto theirs = import(*adopted);
  theirs->data()[100] = std::byte{1};
  adopted.reset();
  EXPECT_EQ(memory_[100], std::byte{1});
  theirs->data()[100] = std::byte{2};
  memory_[200] = std::byte{3};
  EXPECT_EQ(memory_[100], std::byte{1});
  EXPECT_EQ(theirs->data()[200], sample(200));
  const pid_t child = ::fork();  // a child's copy of private memory is its own
  if (child == 0) {
    memory_[300] = std::byte{4};
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(memory_[300], sample(300));
}

TEST_F(AdoptTest, TouchesNothingBesides) {
  {
    const auto adopted = adopt(pages(2, 2));
    const auto theirs = import(*adopted);
    std::memset(theirs->data(), 0, theirs->size());
    expect_samples(memory_, 0, 2 * page_);
    expect_samples(memory_ + 4 * page_, 4 * page_, 2 * page_);
  }
  expect_samples(memory_, 0, 2 * page_);
  expect_samples(memory_ + 4 * page_, 4 * page_, 2 * page_);
  for (const std::byte b : pages(2, 2)) ASSERT_EQ(b, std::byte{0});
}

TEST_F(AdoptTest, CanBeDoneAgain) {
  for (int turn = 0; turn < 3; ++turn) {
    const auto first = adopt(pages(0, 3));
    const auto second = adopt(pages(3, 3));
    expect_samples(import(*first)->data(), 0, 3 * page_);
    expect_samples(import(*second)->data(), 3 * page_, 3 * page_);
  }
  expect_samples(memory_, 0, size_);
}

// Pages that nobody has touched, and some that are written to disk or locked, are private too.
TEST_F(AdoptTest, TakesMemoryOfSeveralMappings) {
  void* place =
      ::mmap(nullptr, 4 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  // Another mapping right in the middle.
  ASSERT_EQ(::madvise(static_cast<std::byte*>(place) + page_, page_, MADV_DONTFORK), 0);
  auto* bytes = static_cast<std::byte*>(place);
  bytes[page_] = std::byte{9};
  {
    const auto adopted = adopt({bytes, 4 * page_});
    EXPECT_EQ(import(*adopted)->data()[page_], std::byte{9});
  }
  EXPECT_EQ(bytes[page_], std::byte{9});
  ::munmap(place, 4 * page_);
}

TEST_F(AdoptTest, RefusesPartsOfPages) {
  refused({memory_ + 8, page_}, "are not whole pages");
  refused({memory_, page_ - 1}, "are not whole pages");
  refused({memory_, page_ + 1}, "are not whole pages");
  refused({static_cast<std::byte*>(nullptr), page_}, "are not whole pages");
  expect_samples(memory_, 0, size_);
}

TEST_F(AdoptTest, RefusesMemoryThatIsNotMapped) {
  void* place =
      ::mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(place);
  ASSERT_EQ(::munmap(bytes + page_, page_), 0);
  refused({bytes, 3 * page_}, "no memory is mapped at");
  // The hole may be somebody else's by now.
  ASSERT_EQ(::munmap(bytes, page_), 0);
  ASSERT_EQ(::munmap(bytes + 2 * page_, page_), 0);
}

TEST_F(AdoptTest, RefusesMemoryThatIsSharedAlready) {
  const auto adopted = adopt(pages(1, 2));
  refused(pages(1, 2), "is mapped as rw-s");
  refused(pages(0, 2), "is mapped as rw-s");
  refused(pages(2, 4), "is mapped as rw-s");
  const auto allocated = device_->allocate("adopt-test", page_);
  refused({allocated->data(), page_}, "is mapped as rw-s");
  expect_samples(memory_, 0, size_);
}

TEST_F(AdoptTest, RefusesMemoryThatCannotBeWritten) {
  void* place = ::mmap(nullptr, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  refused({static_cast<std::byte*>(place), page_}, "is mapped as r--p");
  ::munmap(place, page_);
}

// A file's private pages would lose the file behind them; its contents are kept all the same.
TEST_F(AdoptTest, KeepsTheContentsOfAFilesPages) {
  const Fd file = make_shared_memory("adopt-test-file", page_);
  void* place = ::mmap(nullptr, page_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  ASSERT_NE(place, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(place);
  bytes[7] = std::byte{42};
  { const auto adopted = adopt({bytes, page_}); }
  EXPECT_EQ(bytes[7], std::byte{42});
  ::munmap(place, page_);
}

}  // namespace
}  // namespace ranklink
