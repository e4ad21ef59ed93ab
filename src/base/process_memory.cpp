#include "base/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ranklink {

int read_process_memory(int pid, std::uint64_t address, std::byte* to, std::size_t bytes) {
  constexpr std::size_t kPiece = 64 << 20;  // a call reads less than 2 GiB
  while (bytes > 0) {
    const iovec local{to, std::min(bytes, kPiece)};
    iovec remote{nullptr, local.iov_len};
    static_assert(sizeof remote.iov_base == sizeof address);
    std::memcpy(&remote.iov_base, &address, sizeof address);
    const ssize_t got = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    address += static_cast<std::uint64_t>(got);
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return 0;
}

}  // namespace ranklink
