#pragma once

#include <cstddef>
#include <cstdint>

namespace ranklink {

/// Copies `bytes` at `address` of another process to `to`, by one copy of the kernel's
/// (process_vm_readv(2)). Returns 0 or the errno: EPERM without the right to trace that process or
/// under a seccomp filter, ESRCH once it is gone, EFAULT for memory that it doesn't have.
int read_process_memory(int pid, std::uint64_t address, std::byte* to, std::size_t bytes);

/// The other way round (process_vm_writev(2)).
int write_process_memory(int pid, std::uint64_t address, const std::byte* from, std::size_t bytes);

}  // namespace ranklink
