#include "launch/job.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "autopsy/process_end.h"
#include "base/log.h"

namespace ranklink {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = Deadline::Clock;

// After a failure the others hear of it from the rendezvous and should end by themselves.
constexpr milliseconds kGrace{1000};
// After Ctrl-C programs tidy up; but all is over within 5 s.
constexpr milliseconds kTermAfterInterrupt{3000};
constexpr milliseconds kKillAfterInterrupt{4500};
constexpr milliseconds kKillAfterTerm{2000};
// timeout(1) signals the process and then its group: that is one wish, not two.
constexpr milliseconds kSameInterrupt{200};
constexpr milliseconds kStrayGrace{250};
constexpr seconds kSweepEvery{1};
constexpr seconds kUnkillableWarning{5};
constexpr seconds kUnkillableEnd{60};
constexpr int kRunTimeoutCode = 124;  // as timeout(1)

}  // namespace

Job::Job(const LaunchOptions& options, RankProcesses& processes, Server& server,
         StrayKeeper& strays, const SignalIntake& signals, OomWatch& oom, Deadline run_deadline)
    : options_(options),
      processes_(processes),
      server_(server),
      strays_(strays),
      signals_(signals),
      oom_(oom),
      run_deadline_(run_deadline),
      relay_(options, processes, poller_),
      living_(processes.ranks.size()) {
  poller_.add(signals.fd(), EPOLLIN, Source::signals);
  for (std::size_t i = 0; i < processes.ranks.size(); ++i) {
    poller_.add(processes.ranks[i].pidfd.get(), EPOLLIN, Source::process, static_cast<int>(i));
  }
}

Judgement Job::run() {
  while (living_ > 0 && !given_up_) {
    for (const Ready& ready : poller_.wait(next_wake())) handle(ready);
    act_on_time();
  }
  end_strays();
  // A reader that is slow gets all the time there is, unless the user has had enough.
  const Deadline patience = end_.intervened ? Deadline::after(seconds(1)) : run_deadline_;
  const int interrupts = interrupts_;
  relay_.finish([&] {
    take_signals();
    return interrupts_ != interrupts || patience.passed();
  });
  end_.published = server_.failure();
  return judge(end_);
}

void Job::handle(const Ready& ready) {
  switch (ready.source) {
    case Source::signals:
      take_signals();
      break;
    case Source::process:
      rank_ended(ready.rank);
      break;
    case Source::output:
    case Source::errors:
    case Source::message:
    case Source::outlet:
      relay_.handle(ready);
      break;
  }
}

void Job::rank_ended(int rank) {
  RankProcess& process = processes_.ranks[static_cast<std::size_t>(rank)];
  relay_.drain(rank);
  int status = 0;
  if (::waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  poller_.remove(process.pidfd.get());
  process.pidfd.reset();
  process.pid = 0;
  --living_;

  RankEnd end{.rank = rank, .wait_status = status, .by_us = struck_};
  if (end.is_bad()) {
    end.last_lines = relay_.last_lines(rank);
    // One that crashed by itself may still have been writing its core file when it was struck.
    end.crash = server_.crash_of(rank);
    if (end.crash) end.by_us = false;
    if (!end.by_us) end.oom = oom_.news();
  }
  server_.report_end(rank, end.reason());
  if (end.is_bad() && !end.by_us && !failed_) {
    failed_ = true;
    schedule_.plan(Clock::now(), kGrace, kGrace + kKillAfterTerm);
  }
  end_.ends.push_back(std::move(end));
}

void Job::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.fd(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    switch (signal) {
      case SIGCHLD:
        children_ended_ = true;
        break;
      case SIGTSTP:
        stop_and_continue();
        break;
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
        interrupted_by(signal);
        break;
      default:
        forward(signal);
    }
  }
}

void Job::interrupted_by(int signal) {
  ++interrupts_;
  const auto now = Clock::now();
  if (interrupted_at_ && now - *interrupted_at_ >= kSameInterrupt) {
    schedule_.plan(now, milliseconds(0), milliseconds(0));
    return;
  }
  if (!interrupted_at_) {
    interrupted_at_ = now;
    intervene(Error({.code = ErrorCode::interrupted,
                     .cause = fmt::format("its launcher got {}", signal_text(signal))}),
              128 + signal);
    schedule_.plan(now, kTermAfterInterrupt, kKillAfterInterrupt);
  }
  forward(signal);
}

void Job::forward(int signal) {
  if (signal != SIGUSR1 && signal != SIGUSR2) {
    processes_.signal_all(signal);
    return;
  }
  // These are messages to the program; helpers that it started would die of them.
  for (const pid_t pid : living_pids()) ::kill(pid, signal);
}

// Ctrl-Z reaches only the launcher, since ranks have process groups of their own.
void Job::stop_and_continue() {
  const auto stopped_at = Clock::now();
  const auto left = run_deadline_.left();
  processes_.signal_all(SIGSTOP);
  ::kill(::getpid(), SIGSTOP);
  processes_.signal_all(SIGCONT);
  if (!run_deadline_.is_never() && Clock::now() > stopped_at) run_deadline_ = Deadline::after(left);
}

void Job::act_on_time() {
  const auto now = Clock::now();
  if (children_ended_ && now >= next_sweep_) {
    children_ended_ = false;
    next_sweep_ = now + kSweepEvery;
    strays_.reap(living_pids());
  }
  if (!out_of_time_ && run_deadline_.passed() && living_ > 0) run_out_of_time();
  if (const int signal = schedule_.due(now)) {
    struck_ = true;
    processes_.signal_all(signal);
    if (signal == SIGKILL) killed_at_ = now;
  }
  if (killed_at_ && now - *killed_at_ >= kUnkillableWarning) warn_of_unkillable();
}

void Job::run_out_of_time() {
  out_of_time_ = true;
  if (!schedule_.planned()) {
    const Error error(
        {.code = ErrorCode::run_timeout,
         .cause = fmt::format("after {} there still ran {}",
                              options_.settings.value("RANKLINK_RUN_TIMEOUT"), who_is_left()),
         .remedy = "give it more time (--run-timeout), or find what those ranks wait for"});
    server_.abort(error);
    intervene(error, kRunTimeoutCode);
  }
  schedule_.plan(Clock::now(), milliseconds(0), kKillAfterTerm);
}

void Job::warn_of_unkillable() {
  if (!warned_) {
    warned_ = true;
    log(LogLevel::warn, "SIGKILL doesn't end {}: a driver or file system holds it", who_is_left());
  }
  given_up_ = Clock::now() - *killed_at_ >= kUnkillableEnd;
}

Deadline Job::next_wake() const {
  Deadline wake = schedule_.next();
  if (!out_of_time_) wake = wake.earlier(run_deadline_);
  if (children_ended_ || killed_at_) wake = wake.earlier(Deadline::after(kSweepEvery));
  return wake;
}

void Job::end_strays() {
  // What a rank left behind may still have a last word to print, unless something went wrong.
  const Deadline grace = Deadline::after(schedule_.planned() ? milliseconds(0) : kStrayGrace);
  while (strays_.reap(living_pids()) > 0 && !grace.passed()) {
    for (const Ready& ready : poller_.wait(grace.earlier(Deadline::after(milliseconds(20))))) {
      handle(ready);
    }
  }
  strays_.end(living_pids(), Deadline::after(seconds(2)));
}

void Job::intervene(const Error& why, int exit_code) {
  if (failed_ || end_.intervened) return;  // what came first is the reason
  end_.intervened = why;
  end_.intervened_code = exit_code;
}

std::string Job::who_is_left() const {
  constexpr int kShown = 8;
  std::string text;
  int count = 0;
  for (std::size_t i = 0; i < processes_.ranks.size(); ++i) {
    const pid_t pid = processes_.ranks[i].pid;
    if (pid <= 0 || ++count > kShown) continue;
    const std::string step = server_.step_of(static_cast<int>(i));
    text += fmt::format("{}rank {} (pid {}, state {}){}{}", count > 1 ? ", " : "", i, pid,
                        process_state(pid), step.empty() ? "" : " in step ", step);
  }
  if (count > kShown) text += fmt::format(" and {} more", count - kShown);
  return text;
}

std::vector<pid_t> Job::living_pids() const {
  std::vector<pid_t> pids;
  for (const RankProcess& process : processes_.ranks) {
    if (process.pid > 0) pids.push_back(process.pid);
  }
  return pids;
}

}  // namespace ranklink
