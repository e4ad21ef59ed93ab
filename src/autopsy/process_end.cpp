#include "autopsy/process_end.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "inspect/facts.h"
#include "inspect/files.h"

namespace ranklink {
namespace {

// Fields of /proc/PID/stat, counted from the state, which is the first behind the name.
constexpr int kState = 0;
constexpr int kExitCode = 49;

std::string_view stat_field(std::string_view stat, int index) {
  const auto name_end = stat.rfind(')');  // the name before it may hold anything
  if (name_end == std::string_view::npos) return {};
  stat.remove_prefix(name_end + 1);
  for (; index >= 0; --index) {
    if (stat.empty()) return {};
    stat.remove_prefix(1);  // the space before the field
    if (index == 0) break;
    stat.remove_prefix(std::min(stat.find(' '), stat.size()));
  }
  return stat.substr(0, stat.find(' '));
}

std::string read_stat(int pid) { return read_text(fmt::format("/proc/{}/stat", pid)); }

// The process has no ids and no capabilities that this one lacks: see ptrace(2).
bool may_trace(int pid) {
  const std::string status = read_text(fmt::format("/proc/{}/status", pid));
  const auto capabilities = [](std::string_view of) {
    return number_or<std::uint64_t>(field(of, "CapPrm:"), ~std::uint64_t{0}, 16);
  };
  const std::string own = read_text("/proc/self/status");
  if ((capabilities(status) & ~capabilities(own)) != 0) return false;
  const auto all_are = [&](std::string_view key, unsigned mine) {
    const std::string id = std::to_string(mine);
    return field(status, key).starts_with(fmt::format("{0}\t{0}\t{0}\t", id));
  };
  return all_are("Uid:", ::geteuid()) && all_are("Gid:", ::getegid());
}

// linux/pidfd.h, of Linux 6.15; not in the headers that this is built with.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroupid;
  std::uint32_t ids[11];
  std::int32_t exit_code;
};
static_assert(offsetof(PidfdInfo, exit_code) == 60 && sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kInfoExit = 1 << 3;
constexpr unsigned long kGetInfo = _IOWR(0xff, 11, PidfdInfo);

}  // namespace

char process_state(int pid) {
  const std::string stat = pid > 0 ? read_stat(pid) : "";
  const std::string_view state = stat_field(stat, kState);
  return state.empty() ? '?' : state[0];
}

ProcessWatch::ProcessWatch(int pid, std::uint64_t start_time) {
  if (pid <= 0) return;
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Looked at when the descriptor holds the process: the number can't go to another any more.
  const std::uint64_t started = process_start_time(pid);
  if (start_time != 0 && started != start_time) return;
  pid_ = pid;
  // Not what the last descriptors are for.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
      static_cast<rlim_t>(pidfd.get()) < limit.rlim_cur / 2) {
    pidfd_ = std::move(pidfd);
  }
  start_time_ = started;
}

std::optional<int> ProcessWatch::wait_status() const {
  if (pid_ <= 0) return std::nullopt;
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (pidfd_ && ::ioctl(pidfd_.get(), kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0) {
    return info.exit_code;
  }
  const std::string stat = read_stat(pid_);
  const std::string_view state = stat_field(stat, kState);
  // In one that lives and is only stopped, by whomever, it is the signal that stopped it.
  if (state == "T" || state == "t") return std::nullopt;
  // The number may be another process's by now.
  if (process_start_time(pid_) != start_time_) return std::nullopt;
  const int status = number_or(stat_field(stat, kExitCode), 0);
  if (status != 0) return status;
  // 0 is also what one reads too early, or without the right to know.
  return state == "Z" && may_trace(pid_) ? std::optional(0) : std::nullopt;
}

}  // namespace ranklink
