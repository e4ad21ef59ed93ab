#include "launch/child.h"

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ranklink {
namespace {

constexpr int kReportFd = 62;

[[noreturn]] void give_up(const ChildPlan& plan, int report, ChildStep step, int error) {
  const ChildFailure failure{plan.rank, step, error};
  [[maybe_unused]] const ssize_t n = ::write(report, &failure, sizeof failure);
  ::_exit(127);
}

bool write_file(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(std::strlen(text));
  const bool written = ::write(fd, text, static_cast<std::size_t>(size)) == size;
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

bool map_user(const ChildPlan& plan) {
  // A launcher that has changed its uid isn't dumpable, and then its /proc files belong to root.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  // The kernel wants this before an ordinary user maps a group.
  if (!write_file("/proc/self/setgroups", "deny") && errno != ENOENT) return false;
  return write_file("/proc/self/uid_map", plan.uid_map) &&
         write_file("/proc/self/gid_map", plan.gid_map);
}

bool raise_loopback() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  bool up = ::ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  if (up) {
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    up = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return up;
}

bool mount_shm() {
  if (::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777") == 0) {
    return true;
  }
  return errno == ENOENT;  // nothing there that ranks could share
}

// close_range, or what it does, for kernels and filters that don't have it.
void close_from_to(unsigned first, unsigned last) {
  if (first > last || ::close_range(first, last, 0) == 0) return;
  for (unsigned fd = first; fd <= std::min(last, 65'535U); ++fd) ::close(static_cast<int>(fd));
}

// Moves the inherited sockets to their numbers and closes everything else above stderr. Returns
// the report pipe's new number, or -1.
int arrange_descriptors(const ChildPlan& plan) {
  // First out of the way: any of them may have a number that another one is to get.
  const int socket = ::fcntl(plan.socket, F_DUPFD_CLOEXEC, kReportFd + 1);
  const int report = ::fcntl(plan.report, F_DUPFD_CLOEXEC, kReportFd + 1);
  if (socket < 0 || report < 0) return -1;
  int message = -1;
  if (plan.message >= 0) {
    message = ::fcntl(plan.message, F_DUPFD_CLOEXEC, kReportFd + 1);
    if (message < 0) return -1;
  }
  if (::dup2(socket, kSocketFd) < 0) return -1;
  if (message >= 0 && ::dup2(message, kMessageFd) < 0) return -1;
  if (::dup3(report, kReportFd, O_CLOEXEC) < 0) return -1;
  close_from_to(3, kSocketFd - 1);
  if (message < 0) close_from_to(kMessageFd, kMessageFd);
  close_from_to(kReportFd + 1, ~0U);
  return kReportFd;
}

bool arrange_streams(const ChildPlan& plan) {
  return (plan.input < 0 || ::dup2(plan.input, 0) >= 0) &&
         (plan.output < 0 || ::dup2(plan.output, 1) >= 0) &&
         (plan.errors < 0 || ::dup2(plan.errors, 2) >= 0);
}

bool parent_is_gone(const ChildPlan& plan) {
  // getppid() reads 0 in a new pid namespace, whether the parent lives or not.
  if (plan.launcher_pidfd < 0) return !plan.own_pid && ::getppid() != plan.launcher_pid;
  pollfd gone{.fd = plan.launcher_pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&gone, 1, 0) > 0;
}

}  // namespace

void become_rank(const ChildPlan& plan) {
  int report = plan.report;
  const auto need = [&](bool done, ChildStep step) {
    if (!done) give_up(plan, report, step, errno);
  };
  // A group of its own, so that Ctrl-C at a terminal reaches the rank once, through the launcher.
  need(::setpgid(0, 0) == 0, ChildStep::process_group);
  // Only the second line against outliving the launcher: setuid programs lose it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  need(!parent_is_gone(plan), ChildStep::parent_gone);

  if (plan.own_user) need(map_user(plan), ChildStep::user_map);
  if (plan.own_net) need(raise_loopback(), ChildStep::loopback);
  if (plan.own_uts) {
    need(::sethostname(plan.hostname, std::strlen(plan.hostname)) == 0, ChildStep::hostname);
  }
  if (plan.own_mnt) {
    need(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
         ChildStep::private_mounts);
    need(mount_shm(), ChildStep::shm);
    if (plan.own_pid) {
      // Refused where parts of the old /proc are hidden, as in containers: that one then stays.
      ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
    }
  }

  need(arrange_streams(plan), ChildStep::streams);
  const int moved = arrange_descriptors(plan);
  need(moved >= 0, ChildStep::descriptors);
  report = moved;
  need(::setrlimit(RLIMIT_NOFILE, &plan.descriptor_limit) == 0, ChildStep::limits);

  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  for (int i = 0; i < plan.caught_count; ++i) ::sigaction(plan.caught_signals[i], &plain, nullptr);
  need(::sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr) == 0, ChildStep::signals);

  ::execvpe(plan.argv[0], plan.argv, plan.environment);
  give_up(plan, report, ChildStep::exec, errno);
}

}  // namespace ranklink
