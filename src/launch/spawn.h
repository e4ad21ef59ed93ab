#pragma once

#include <sys/types.h>

#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "launch/environment.h"
#include "launch/host_state.h"
#include "launch/isolation.h"
#include "launch/launcher.h"

namespace ranklink {

/// A rank's process as its launcher holds it.
struct RankProcess {
  pid_t pid = 0;  ///< 0 once it is reaped
  Fd pidfd;
  Fd socket;   ///< the launcher's end, towards the rendezvous
  Fd output;   ///< what the rank writes to stdout; none without prefix
  Fd errors;   ///< and to stderr
  Fd message;  ///< and to RANKLINK_MESSAGE_FD; none without capture
};

/// Owns the processes: those that are still there when it goes are killed and reaped.
class RankProcesses {
 public:
  RankProcesses() = default;
  RankProcesses(RankProcesses&&) = default;
  RankProcesses& operator=(RankProcesses&&) = delete;
  ~RankProcesses();

  std::vector<RankProcess> ranks;

  /// Sends a signal to the rank and everything that is still in its process group, if it wasn't
  /// reaped.
  void signal_group(int rank, int signal) const;
  void signal_all(int signal) const;
};

/// What the isolation asked for needs besides: a user namespace, for those who may not have others.
Isolation needed_isolation(const Isolation& asked);

/// Starts all ranks and returns once each runs its program. Throws Error with nothing left running:
/// program_unstartable, isolation_refused, interrupted; run_timeout when the deadline passes.
RankProcesses spawn_ranks(const LaunchOptions& options, RankEnvironment& environment,
                          const DescriptorLimit& limit, const SignalIntake& signals,
                          Deadline deadline);

}  // namespace ranklink
