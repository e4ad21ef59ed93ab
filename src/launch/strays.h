#pragma once

#include <sys/types.h>

#include <vector>

#include "base/deadline.h"

namespace ranklink {

/// Takes in the processes that ranks leave behind: while it lives, an orphan below this process
/// becomes its child instead of init's, so that it can be found and ended.
class StrayKeeper {
 public:
  StrayKeeper();
  ~StrayKeeper();
  StrayKeeper(const StrayKeeper&) = delete;
  StrayKeeper& operator=(const StrayKeeper&) = delete;

  /// Reaps strays that have ended by themselves, and tells how many live. `ranks` are no strays.
  std::size_t reap(const std::vector<pid_t>& ranks);
  /// Kills the strays, and those that come to light when their parents end, until none is left or
  /// the deadline passes.
  void end(const std::vector<pid_t>& ranks, Deadline deadline);

 private:
  std::vector<pid_t> strays(const std::vector<pid_t>& ranks) const;

  bool active_ = false;
  int was_subreaper_ = 0;
  std::vector<pid_t> before_;  ///< children that the caller had already
};

}  // namespace ranklink
