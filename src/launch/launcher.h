#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/settings.h"
#include "launch/isolation.h"
#include "ranklink/error.hpp"
#include "rendezvous/server.h"

namespace ranklink {

/// What to launch.
struct LaunchOptions {
  int size = 1;
  std::vector<std::string> argv;  ///< the program (looked up in PATH) and its arguments
  Settings settings;              ///< those that don't hold their defaults are handed to ranks
  Isolation isolation;
  bool prefix = true;    ///< put `[rank] ` before each line that a rank prints
  bool capture = false;  ///< a pipe a rank to on_message, see there
  Reducer reduce;        ///< what the rendezvous does with a round
  /// With `capture`, each rank inherits a pipe whose number is in RANKLINK_MESSAGE_FD; each line
  /// that it writes there comes here, without its newline.
  std::function<void(int rank, std::string line)> on_message;
  /// All processes exist.
  std::function<void()> on_started;
};

/// How a job ended.
struct LaunchResult {
  int exit_code = 0;             ///< 0, the failing rank's code, or 128 + signal
  std::optional<Error> failure;  ///< why, if it wasn't 0
  double processes_ms = 0;       ///< until all processes existed
};

/// Starts `size` ranks by fork+exec, serves their rendezvous, passes on their output and the
/// signals that it is sent, and ends the rest when one fails. Returns when no rank process is left.
///
/// Call it from a process with a single thread: it forks. Throws Error when the job can't be
/// started at all; nothing is left running then.
LaunchResult launch(const LaunchOptions& options);

}  // namespace ranklink
