#pragma once

#include <sys/resource.h>

#include <csignal>

namespace ranklink {

/// What a freshly cloned child does one after another until it is the rank's program.
enum class ChildStep : int {
  parent_gone,
  process_group,
  user_map,
  loopback,
  hostname,
  private_mounts,
  shm,
  streams,
  descriptors,
  limits,
  signals,
  exec,
};

/// What a child that can't go on tells its launcher; small enough that pipes keep it in one piece.
struct ChildFailure {
  int rank;
  ChildStep step;
  int error;
};

/// Everything that a child needs, prepared before the clone: between it and exec nothing may be
/// allocated, since another thread of the launcher's caller may have held the allocator's lock.
struct ChildPlan {
  int rank = 0;
  int launcher_pidfd = -1;  ///< readable once the launcher has ended; -1 where it can't be had
  pid_t launcher_pid = 0;
  int report = -1;   ///< close-on-exec pipe for a ChildFailure
  int input = -1;    ///< becomes stdin; -1 leaves it
  int output = -1;   ///< becomes stdout; -1 leaves it
  int errors = -1;   ///< becomes stderr; -1 leaves it
  int socket = -1;   ///< becomes kSocketFd
  int message = -1;  ///< becomes kMessageFd; -1 for none
  rlimit descriptor_limit{};
  sigset_t signal_mask{};
  const int* caught_signals = nullptr;
  int caught_count = 0;
  char** argv = nullptr;
  char** environment = nullptr;

  bool own_user = false;
  bool own_pid = false;
  bool own_net = false;
  bool own_mnt = false;
  bool own_uts = false;
  char uid_map[64]{};
  char gid_map[64]{};
  char hostname[64]{};
};

/// Numbers that shell scripts (0 to 9, and from 10 on bash and dash for themselves) don't redirect.
inline constexpr int kSocketFd = 60;
inline constexpr int kMessageFd = 61;

/// Runs in the child. Async-signal-safe.
[[noreturn]] void become_rank(const ChildPlan& plan);

}  // namespace ranklink
