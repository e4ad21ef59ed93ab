#include "base/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace ranklink {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// On older kernels a signal undoes the call in which it arrives, so a program with a profiling
// timer would never see one large reservation end; small ones do.
int reserve(int fd, std::size_t size) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::size_t done = 0;
  do {
    const std::size_t piece = std::min(kPiece, size - done);
    const int error = ::posix_fallocate(fd, static_cast<off_t>(done), static_cast<off_t>(piece));
    if (error == EINTR) continue;
    if (error != 0) return error;
    done += piece;
  } while (done < size);
  return 0;
}

}  // namespace

Mapping::Mapping(int fd, std::size_t size) : size_(size) {
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw system_error(fmt::format("mmap of {} bytes", size), errno);
  data_ = static_cast<std::byte*>(address);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) ::munmap(data_, size_);
}

Fd make_shared_memory(const std::string& name, std::size_t size) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw system_error("memfd_create", errno);
  if (const int error = reserve(fd.get(), size); error != 0) {
    throw Error({.code = ErrorCode::memory_short,
                 .cause = fmt::format("posix_fallocate of {} bytes of shared memory: {}", size,
                                      errno_text(error)),
                 .remedy = "free memory, or raise the memory limit of the container or cgroup"});
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw system_error("fcntl F_ADD_SEALS", errno);
  return fd;
}

void check_shared_memory(int fd, std::size_t size) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw system_error("fstat of received memory", errno);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(status.st_mode) || status.st_size < 0 ||
      static_cast<std::size_t>(status.st_size) < size || seals < 0 || (seals & kSeals) != kSeals) {
    throw Error(
        {.code = ErrorCode::protocol_violation,
         .cause = fmt::format("received memory of {} bytes with seals {:#x} where {} sealed "
                              "bytes were announced",
                              status.st_size, seals, size),
         .remedy = "run the same version of ranklink on all ranks"});
  }
}

}  // namespace ranklink
