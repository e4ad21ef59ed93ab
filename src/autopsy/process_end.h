#pragma once

#include <cstdint>
#include <optional>

#include "base/fd.h"

namespace ranklink {

/// The state letter of /proc/PID/stat, as in `R`, `S`, `D`, `T`, `Z`; `?` if it can't be read.
char process_state(int pid);

/// A process that is watched for how it ends, whoever its parent is.
///
/// The kernel tells it in two places. While the process is being taken apart, which takes a second
/// for 8 GiB of memory, and until its parent has reaped it, /proc/PID/stat has it (proc(5),
/// exit_code) for those who may trace the process. Once it is reaped, Linux from 6.15 on tells
/// whoever holds a pidfd (PIDFD_GET_INFO, pidfd_open(2)).
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// `pid` as this process sees it; 0 for none, whose end is never known. With `start_time`, as in
  /// Facts, only the process that began then.
  explicit ProcessWatch(int pid, std::uint64_t start_time = 0);

  int pid() const { return pid_; }  ///< 0 if there is no such process
  /// As waitpid gives it; nothing where it isn't known, or the process hasn't ended.
  std::optional<int> wait_status() const;

 private:
  int pid_ = 0;
  std::uint64_t start_time_ = 0;
  Fd pidfd_;
};

}  // namespace ranklink
