#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// How a rank's process ended.
struct RankEnd {
  int rank = 0;
  int wait_status = 0;     ///< of waitpid
  bool by_us = false;      ///< the launcher ended it: says nothing about why the job failed
  std::string last_lines;  ///< of its stderr
  std::string oom;         ///< what is known of the out-of-memory killer's part in it, or empty

  bool is_bad() const { return wait_status != 0; }
  /// As a shell has it: the code, or 128 + the signal.
  int exit_code() const;
  /// rank_exited or rank_killed, with cause and remedy. The step is for others to add.
  Error reason() const;
};

/// `SIGSEGV (signal 11)`
std::string signal_text(int signal);

/// What the job's result is made of. `ends` are in the order in which ranks ended.
struct JobEnd {
  std::vector<RankEnd> ends;
  std::optional<Error> published;   ///< what the rendezvous told the ranks
  std::optional<Error> intervened;  ///< the user's signal, or the deadline, if it came before any
                                    ///< failure
  int intervened_code = 0;
};

struct Judgement {
  int exit_code = 0;
  std::optional<Error> failure;
};

/// Which failure counts, and the exit code that goes with it. Pure.
Judgement judge(const JobEnd& job);

/// When to send SIGTERM and SIGKILL to the ranks that are left.
class EndSchedule {
 public:
  using Clock = Deadline::Clock;

  /// Brings either forward; never puts one off.
  void plan(Clock::time_point now, Milliseconds term_in, Milliseconds kill_in);
  bool planned() const { return kill_at_.has_value(); }
  /// The signal that is due now, once each, or 0.
  int due(Clock::time_point now);
  /// When `due` is to be asked next.
  Deadline next() const;

 private:
  std::optional<Clock::time_point> term_at_;
  std::optional<Clock::time_point> kill_at_;
  bool term_sent_ = false;
  bool kill_sent_ = false;
};

}  // namespace ranklink
