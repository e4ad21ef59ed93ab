#include "launch/ending.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace ranklink {
namespace {

std::string remedy_for(int signal, bool out_of_memory) {
  if (out_of_memory) {
    return "raise the memory limit of the cgroup or container, or use fewer ranks or less memory";
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

int RankEnd::exit_code() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Error RankEnd::reason() const {
  Error::Parts parts{.code = ErrorCode::rank_exited, .rank = rank};
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    parts.code = ErrorCode::rank_killed;
    parts.cause = by_us ? fmt::format("ended by its launcher with {}", signal_text(signal))
                        : fmt::format("killed by {}", signal_text(signal));
    if (!oom.empty()) parts.cause += "; " + oom;
    if (!by_us) parts.remedy = remedy_for(signal, !oom.empty());
  } else {
    parts.cause = fmt::format("exited with code {}", WEXITSTATUS(wait_status));
    parts.remedy = is_bad() ? "see what it printed before it ended"
                            : "let every rank leave the group before its process exits";
  }
  if (is_bad() && !last_lines.empty()) {
    parts.cause += fmt::format("; last lines of its stderr: {}", last_lines);
  }
  return Error(std::move(parts));
}

Judgement judge(const JobEnd& job) {
  if (job.intervened) return {job.intervened_code, job.intervened};

  const auto own_fault = [](const RankEnd& end) { return end.is_bad() && !end.by_us; };
  const auto find = [&](auto&& wanted) -> const RankEnd* {
    const auto found = std::find_if(job.ends.begin(), job.ends.end(), wanted);
    return found == job.ends.end() ? nullptr : &*found;
  };
  const RankEnd* primary = nullptr;
  if (job.published && job.published->rank() >= 0) {
    primary = find(
        [&](const RankEnd& end) { return end.rank == job.published->rank() && own_fault(end); });
  }
  if (!primary) primary = find(own_fault);
  if (!primary) primary = find([](const RankEnd& end) { return end.is_bad(); });
  if (!primary && !job.published) return {};

  const int code = primary ? primary->exit_code() : 1;
  if (!job.published) return {code, primary->reason()};
  // What the ranks were told is the better story; how the process ended completes it.
  Error failure = *job.published;
  const bool told_by_end =
      failure.code() == ErrorCode::rank_exited || failure.code() == ErrorCode::rank_killed;
  if (primary && primary->rank == failure.rank() && !told_by_end && failure.context().empty()) {
    RankEnd how = *primary;
    how.last_lines.clear();  // they are seldom more than this same failure once again
    const Error end = how.reason();
    failure = with(failure, [&](Error::Parts& parts) {
      parts.context = fmt::format("its process: {}", end.cause());
    });
  }
  return {code, failure};
}

void EndSchedule::plan(Clock::time_point now, Milliseconds term_in, Milliseconds kill_in) {
  const auto bring_forward = [](std::optional<Clock::time_point>& at, Clock::time_point wanted) {
    at = at ? std::min(*at, wanted) : wanted;
  };
  bring_forward(term_at_, now + term_in);
  bring_forward(kill_at_, now + kill_in);
}

int EndSchedule::due(Clock::time_point now) {
  if (kill_at_ && !kill_sent_ && now >= *kill_at_) {
    kill_sent_ = term_sent_ = true;
    return SIGKILL;
  }
  if (term_at_ && !term_sent_ && now >= *term_at_) {
    term_sent_ = true;
    return SIGTERM;
  }
  return 0;
}

Deadline EndSchedule::next() const {
  const auto until = [](Clock::time_point at) { return Deadline::after(at - Clock::now()); };
  if (term_at_ && !term_sent_) return until(std::min(*term_at_, *kill_at_));
  if (kill_at_ && !kill_sent_) return until(*kill_at_);
  return Deadline::never();
}

}  // namespace ranklink
