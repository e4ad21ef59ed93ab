#include "launch/host_state.h"

#include <fcntl.h>
#include <sys/signalfd.h>

#include <cerrno>

#include "base/error.h"

namespace ranklink {
namespace {

constexpr int kTaken[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                          SIGUSR2, SIGWINCH, SIGTSTP, SIGCHLD};

bool is_pending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, signal) == 1;
}

}  // namespace

DescriptorLimit::DescriptorLimit() {
  if (::getrlimit(RLIMIT_NOFILE, &original_) != 0) throw system_error("getrlimit NOFILE", errno);
  rlimit wanted = original_;
  wanted.rlim_cur = wanted.rlim_max;
  // Not being allowed to is no failure yet: few ranks fit in the old limit.
  raised_ = ::setrlimit(RLIMIT_NOFILE, &wanted) == 0;
}

DescriptorLimit::~DescriptorLimit() {
  if (raised_) ::setrlimit(RLIMIT_NOFILE, &original_);
}

StandardStreams::StandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Takes the lowest free number, which is `fd`.
    filled_.emplace_back(::open("/dev/null", O_RDWR));
    if (!filled_.back()) throw system_error("open /dev/null", errno);
  }
}

SignalIntake::SignalIntake() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : kTaken) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN || signal == SIGCHLD) ::sigaddset(&taken, signal);
  }
  fd_.reset(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw system_error("signalfd", errno);

  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL) caught_.push_back(signal);
  }
  // An ignored SIGCHLD, or SA_NOCLDWAIT, would throw the exit statuses of ranks away.
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &plain, &child_action_);

  pipe_was_pending_ = is_pending(SIGPIPE);
  ::sigaddset(&taken, SIGPIPE);  // a closed output must not end the launcher before its ranks
  ::pthread_sigmask(SIG_BLOCK, &taken, &original_);
}

SignalIntake::~SignalIntake() {
  if (!pipe_was_pending_) {
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    while (::sigtimedwait(&pipe, nullptr, &now) == SIGPIPE) {
    }
  }
  ::sigaction(SIGCHLD, &child_action_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &original_, nullptr);
}

}  // namespace ranklink
