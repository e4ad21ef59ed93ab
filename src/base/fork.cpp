#include "base/fork.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

#include "base/error.h"

namespace ranklink {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

ForkMark::ForkMark() {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw system_error("mmap", errno);
  if (::madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    const int error = errno;
    ::munmap(page, kPage);
    throw system_error("madvise(MADV_WIPEONFORK)", error, "use Linux 4.14 or later");
  }
  page_ = new (page) std::atomic<int>(1);
}

ForkMark::~ForkMark() { ::munmap(page_, kPage); }

}  // namespace ranklink
