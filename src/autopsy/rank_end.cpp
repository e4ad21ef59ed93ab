#include "autopsy/rank_end.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/error.h"

namespace ranklink {
namespace {

std::string remedy_for(int signal, const RankEnd& end) {
  if (!end.oom.empty()) {
    return "raise the memory limit of the cgroup or container, or use fewer ranks or less memory";
  }
  if (end.crash && end.crash->is_bad_call() && end.crash->facts.address == 0) {
    return "the library that should have the function which the first one of the backtrace calls "
           "is "
           "missing, too old, or was left out by the linker (see -Wl,--no-as-needed)";
  }
  switch (signal) {
    case SIGKILL:
      return "find who sent it: a scheduler, a limit, or the kernel (see dmesg)";
    case SIGBUS:
      return "memory behind a mapping was missing: check df /dev/shm and whether a file was cut "
             "short";
    case SIGSEGV:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
      return "keep a core file (ulimit -c unlimited) and look at it with gdb";
    case SIGXCPU:
      return "raise the limit of CPU time (ulimit -t)";
    case SIGXFSZ:
      return "raise the limit of file size (ulimit -f)";
    case SIGSYS:
      return "a seccomp filter forbids a system call that it made";
    default:
      return "";
  }
}

}  // namespace

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{} (signal {})", name, signal)
                         : fmt::format("signal {}", signal);
}

int RankEnd::signal() const {
  if (crash) return crash->facts.signal;
  return wait_status && WIFSIGNALED(*wait_status) ? WTERMSIG(*wait_status) : 0;
}

int RankEnd::exit_code() const {
  if (const int by = signal(); by != 0) return 128 + by;
  return wait_status ? WEXITSTATUS(*wait_status) : 1;
}

Error RankEnd::reason() const {
  Error::Parts parts{.code = ErrorCode::rank_exited, .rank = rank};
  if (const int by = signal(); by != 0) {
    parts.code = ErrorCode::rank_killed;
    parts.cause = by_us ? fmt::format("ended by its launcher with {}", signal_text(by))
                        : fmt::format("killed by {}", signal_text(by));
    const std::string inside = crash ? crash->text() : "";
    if (!inside.empty()) parts.cause += ": " + inside;
    if (crash && !crash->backtrace.empty()) parts.cause += "; backtrace: " + crash->backtrace;
    if (!oom.empty()) parts.cause += "; " + oom;
    if (!by_us) parts.remedy = remedy_for(by, *this);
  } else if (wait_status) {
    parts.cause = fmt::format("exited with code {}", exit_code());
    parts.remedy = is_bad() ? "see what it printed before it ended"
                            : "let every rank leave the group before its process exits";
  } else {
    parts.code = ErrorCode::rank_died;
    parts.cause = "its process ended; how isn't known here";
    parts.remedy =
        "look at the output of that rank, and at the kernel's log for an out-of-memory kill";
  }
  if (is_bad() && !last_lines.empty()) {
    parts.cause += fmt::format("; last lines of its stderr: {}", last_lines);
  }
  return Error(std::move(parts));
}

}  // namespace ranklink
