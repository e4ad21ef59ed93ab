#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "autopsy/rank_end.h"
#include "base/deadline.h"
#include "ranklink/error.hpp"

namespace ranklink {

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
