#include "launch/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/socket.h"
#include "launch/child.h"
#include "launch/refusal.h"

namespace ranklink {
namespace {

std::pair<Fd, Fd> make_pipe(int flags) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | flags) != 0) throw system_error("pipe", errno);
  return {Fd(ends[0]), Fd(ends[1])};
}

void set_nonblocking(const Fd& fd) {
  // Only the launcher's end: the rank's must block, as programs expect of their output.
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) throw system_error("fcntl O_NONBLOCK", errno);
}

bool may_make_namespaces() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

int clone_flags(const Isolation& isolation) {
  int flags = 0;
  if (isolation.has("pid")) flags |= CLONE_NEWPID;
  if (isolation.has("net")) flags |= CLONE_NEWNET;
  if (isolation.has("ipc")) flags |= CLONE_NEWIPC;
  if (isolation.has("uts")) flags |= CLONE_NEWUTS;
  if (isolation.has("mnt")) flags |= CLONE_NEWNS;
  if (isolation.has("user")) flags |= CLONE_NEWUSER;
  return flags;
}

// The child runs on a copy of this stack, as after fork.
pid_t clone_process(int flags, int& pidfd) {
  return static_cast<pid_t>(::syscall(SYS_clone, static_cast<unsigned long>(flags | SIGCHLD),
                                      nullptr, &pidfd, nullptr, nullptr));
}

std::optional<ChildFailure> read_failure(int report) {
  ChildFailure failure{};
  const ssize_t n = ::read(report, &failure, sizeof failure);
  if (n == sizeof failure) return failure;
  return std::nullopt;
}

// Waits until every child has replaced itself by its program, which closes its end of the pipe.
void wait_for_programs(int report, const SignalIntake& signals, const std::string& program,
                       const Isolation& isolation, Deadline deadline) {
  for (;;) {
    pollfd fds[] = {{.fd = report, .events = POLLIN, .revents = 0},
                    {.fd = signals.fd(), .events = POLLIN, .revents = 0}};
    const int n = ::poll(fds, 2, deadline.poll_ms());
    if (n < 0 && errno != EINTR) throw system_error("poll", errno);
    if (n > 0 && fds[0].revents != 0) {
      const auto failure = read_failure(report);
      if (!failure) return;
      throw child_failed(*failure, program, isolation);
    }
    if (n > 0 && fds[1].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals.fd(), &info, sizeof info) != sizeof info) continue;
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
      throw Error({.code = ErrorCode::interrupted,
                   .step = "spawn",
                   .cause = fmt::format("SIG{} to the launcher", ::sigabbrev_np(signal))});
    }
    if (deadline.passed()) {
      throw Error({.code = ErrorCode::program_unstartable,
                   .step = "spawn",
                   .cause = fmt::format("execvp {} has not returned before the deadline", program),
                   .remedy = "check that its file system answers"});
    }
  }
}

}  // namespace

RankProcesses::~RankProcesses() {
  for (const RankProcess& rank : ranks) {
    if (rank.pid <= 0) continue;
    ::kill(-rank.pid, SIGKILL);
    ::kill(rank.pid, SIGKILL);  // it may not have made its group yet
  }
  for (const RankProcess& rank : ranks) {
    if (rank.pid <= 0) continue;
    // One that is stuck in a driver must not hold the launcher for ever.
    if (wait_for(rank.pidfd.get(), POLLIN, Deadline::after(std::chrono::seconds(5)))) {
      ::waitpid(rank.pid, nullptr, 0);
    }
  }
}

void RankProcesses::signal_group(int rank, int signal) const {
  const pid_t pid = ranks[static_cast<std::size_t>(rank)].pid;
  if (pid > 0) ::kill(-pid, signal);
}

void RankProcesses::signal_all(int signal) const {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    signal_group(static_cast<int>(rank), signal);
  }
}

Isolation needed_isolation(const Isolation& asked) {
  if (!asked.any() || asked.has("user") || may_make_namespaces()) return asked;
  return asked.with("user");
}

RankProcesses spawn_ranks(const LaunchOptions& options, RankEnvironment& environment,
                          const DescriptorLimit& limit, const SignalIntake& signals,
                          Deadline deadline) {
  const Isolation isolation = needed_isolation(options.isolation);
  const int flags = CLONE_PIDFD | clone_flags(isolation);
  const Fd launcher(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw system_error("open /dev/null", errno);
  auto [report_read, report_write] = make_pipe(0);
  set_nonblocking(report_read);

  std::vector<char*> argv;
  for (const std::string& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  ChildPlan plan{.launcher_pidfd = launcher.get(),
                 .launcher_pid = ::getpid(),
                 .report = report_write.get(),
                 .descriptor_limit = limit.original(),
                 .signal_mask = signals.original_mask(),
                 .caught_signals = signals.caught().data(),
                 .caught_count = static_cast<int>(signals.caught().size()),
                 .argv = argv.data(),
                 .own_user = isolation.has("user"),
                 .own_pid = isolation.has("pid"),
                 .own_net = isolation.has("net"),
                 .own_mnt = isolation.has("mnt"),
                 .own_uts = isolation.has("uts")};
  std::snprintf(plan.uid_map, sizeof plan.uid_map, "%u %u 1", ::geteuid(), ::geteuid());
  std::snprintf(plan.gid_map, sizeof plan.gid_map, "%u %u 1", ::getegid(), ::getegid());
  // Ranks are in the terminal's background, where reading from it would stop them; and bytes that
  // several processes read from one input reach nobody whole.
  const bool rank_0_reads = ::isatty(STDIN_FILENO) == 0;

  RankProcesses processes;
  processes.ranks.reserve(static_cast<std::size_t>(options.size));
  for (int number = 0; number < options.size; ++number) {
    RankProcess& rank = processes.ranks.emplace_back();
    Fd socket, output, errors, message;
    std::tie(rank.socket, socket) = make_socketpair();
    if (options.prefix) {
      std::tie(rank.output, output) = make_pipe(0);
      std::tie(rank.errors, errors) = make_pipe(0);
      set_nonblocking(rank.output);
      set_nonblocking(rank.errors);
    }
    if (options.capture) {
      std::tie(rank.message, message) = make_pipe(0);
      set_nonblocking(rank.message);
    }
    plan.rank = number;
    plan.input = number == 0 && rank_0_reads ? -1 : nothing.get();
    plan.output = output.get();
    plan.errors = errors.get();
    plan.socket = socket.get();
    plan.message = message.get();
    plan.environment = environment.for_rank(number);
    std::snprintf(plan.hostname, sizeof plan.hostname, "ranklink-%d", number);

    int pidfd = -1;
    const pid_t pid = clone_process(flags, pidfd);
    if (pid == 0) become_rank(plan);
    if (pid < 0) throw clone_refused(number, errno, isolation);
    rank.pid = pid;
    rank.pidfd.reset(pidfd);
    // When one can't start, the others can't either: no need to try them all.
    if (const auto failure = read_failure(report_read.get())) {
      throw child_failed(*failure, options.argv[0], isolation);
    }
  }
  report_write.reset();
  wait_for_programs(report_read.get(), signals, options.argv[0], isolation, deadline);
  return processes;
}

}  // namespace ranklink
