#pragma once

#include <optional>
#include <string>

#include "autopsy/crash.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// How a rank's process ended, as far as it is known.
struct RankEnd {
  int rank = 0;
  std::optional<int> wait_status;  ///< of waitpid
  std::optional<Crash> crash;      ///< what the process itself could say
  bool by_us = false;              ///< the launcher ended it: says nothing about why the job failed
  std::string last_lines;          ///< of its stderr
  std::string oom;  ///< what is known of the out-of-memory killer's part in it, or empty

  /// The signal that ended it, or 0. A crash that it reported precedes what came of it.
  int signal() const;
  bool is_known() const { return wait_status || crash; }
  bool is_bad() const { return wait_status != 0; }
  /// As a shell has it: the code, or 128 + the signal; 1 if it isn't known.
  int exit_code() const;
  /// rank_exited, rank_killed, or rank_died where it isn't known, with cause and remedy. The step
  /// is for others to add.
  Error reason() const;
};

/// `SIGSEGV (signal 11)`
std::string signal_text(int signal);

}  // namespace ranklink
