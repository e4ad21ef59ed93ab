#pragma once

#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "base/fd.h"

namespace ranklink {

/// What a launch changes in its own process, each put back when the launch is over.

/// Raises the soft limit of open files to the hard one: a launcher holds five a rank.
class DescriptorLimit {
 public:
  DescriptorLimit();
  ~DescriptorLimit();
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  const rlimit& original() const { return original_; }

 private:
  rlimit original_{};
  bool raised_ = false;
};

/// Makes descriptors 0 to 2 exist, so that no pipe of ours lands where a rank's output goes.
class StandardStreams {
 public:
  StandardStreams();

 private:
  std::vector<Fd> filled_;
};

/// Takes over the signals that a launcher forwards, SIGCHLD, and SIGPIPE, by blocking them, and
/// makes them readable. Signals that were ignored stay so: under nohup a SIGHUP concerns nobody.
class SignalIntake {
 public:
  SignalIntake();
  ~SignalIntake();
  SignalIntake(const SignalIntake&) = delete;
  SignalIntake& operator=(const SignalIntake&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& original_mask() const { return original_; }
  /// Signals for which the process has handlers, which must not run in a child.
  const std::vector<int>& caught() const { return caught_; }

 private:
  sigset_t original_{};
  struct sigaction child_action_ {};
  bool pipe_was_pending_ = false;
  std::vector<int> caught_;
  Fd fd_;
};

}  // namespace ranklink
