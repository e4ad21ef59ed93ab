#include "base/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ranklink {

namespace {

using Copy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

int copy(Copy call, int pid, std::uint64_t address, std::byte* here, std::size_t bytes) {
  constexpr std::size_t kPiece = 64 << 20;  // a call copies less than 2 GiB
  while (bytes > 0) {
    const iovec local{here, std::min(bytes, kPiece)};
    iovec remote{nullptr, local.iov_len};
    static_assert(sizeof remote.iov_base == sizeof address);
    std::memcpy(&remote.iov_base, &address, sizeof address);
    const ssize_t done = call(pid, &local, 1, &remote, 1, 0);
    if (done < 0) return errno;
    if (done == 0) return EFAULT;
    address += static_cast<std::uint64_t>(done);
    here += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return 0;
}

}  // namespace

int read_process_memory(int pid, std::uint64_t address, std::byte* to, std::size_t bytes) {
  return copy(::process_vm_readv, pid, address, to, bytes);
}

int write_process_memory(int pid, std::uint64_t address, const std::byte* from, std::size_t bytes) {
  // An iovec is for both directions.
  return copy(::process_vm_writev, pid, address, const_cast<std::byte*>(from), bytes);
}

}  // namespace ranklink
