// For LD_PRELOAD: makes one rank's mapping of one peer's memory wrong, as a driver might.
//
//   CORRUPT_MAPPING=1:0:private    what rank 1 maps of rank 0 gets a copy on the first write
//   CORRUPT_MAPPING=1:0:other      what rank 1 maps of rank 0 is memory of no rank
//
// Pairs are separated by commas. The rank is the environment's RANK.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// How `fd`, about to be mapped, is to be corrupted; empty if it isn't.
std::string corruption_of(int fd) {
  const char* pairs = std::getenv("CORRUPT_MAPPING");
  const char* rank = std::getenv("RANK");
  if (pairs == nullptr || rank == nullptr || fd < 0) return {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char target[256] = {};
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return {};
  constexpr const char* kName = "/memfd:ranklink-segment-";
  if (std::strncmp(target, kName, std::strlen(kName)) != 0) return {};
  const std::string peer = std::to_string(std::atoi(target + std::strlen(kName)));
  const std::string wanted = "," + std::string(rank) + ":" + peer + ":";
  const std::string all = "," + std::string(pairs) + ",";
  const auto found = all.find(wanted);
  if (found == std::string::npos) return {};
  const auto start = found + wanted.size();
  return all.substr(start, all.find(',', start) - start);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* mmap(void* address, std::size_t size,
                                                             int protection, int flags, int fd,
                                                             off_t offset) noexcept {
  if ((flags & MAP_SHARED) != 0) {
    const std::string how = corruption_of(fd);
    if (!how.empty()) {
      static const char said[] = "corrupt_mapping: a peer's memory is mapped wrongly\n";
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, said, sizeof said - 1);
    }
    if (how == "private") flags = (flags & ~MAP_TYPE) | MAP_PRIVATE;
    if (how == "other") {
      flags |= MAP_ANONYMOUS;
      fd = -1;
    }
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}

extern "C" __attribute__((visibility("default"))) void* mmap64(void* address, std::size_t size,
                                                               int protection, int flags, int fd,
                                                               off_t offset) noexcept {
  return mmap(address, size, protection, flags, fd, offset);
}
