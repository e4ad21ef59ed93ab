#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "launch/launcher.h"

namespace ranklink {

/// What a launch in a process of its own came to.
struct Outcome {
  bool threw = false;
  int exit_code = -1;
  std::string code;  ///< of the failure, as in `rank_exited`; empty for none
  int rank = -1;
  std::string cause;
  std::string remedy;
  std::string leaks;  ///< what the launch left changed in its process; empty is right
  std::string out;
  std::string err;
  double seconds = 0;
};

struct LaunchTest {
  LaunchOptions options;
  /// In the launcher's process before the launch, to change its uid or its limits.
  std::function<void()> before;
  /// In the test's process while the launch runs, once the ranks have printed `ready`.
  std::function<void(pid_t launcher)> meddle;
};

/// Launches `sh -c SCRIPT` `size` times unless options say otherwise.
LaunchTest script(int size, const std::string& text);

/// Runs the launch in a forked process, since it wants one thread and its own signals. Past 60 s it
/// is killed.
Outcome launch_in_child(const LaunchTest& test);

/// Pids of processes whose command line holds `mark`.
std::vector<pid_t> processes_with(const std::string& mark);

/// Makes this process an ordinary user. Only root can.
void become_ordinary_user();

}  // namespace ranklink
