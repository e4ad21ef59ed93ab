#include "launch/ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"

namespace ranklink {

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
  const bool told_by_end = failure.code() == ErrorCode::rank_exited ||
                           failure.code() == ErrorCode::rank_killed ||
                           failure.code() == ErrorCode::rank_died;
  if (!primary || primary->rank != failure.rank()) return {code, failure};
  if (told_by_end) {
    // The ranks could not wait for all that is known by now.
    failure = with(primary->reason(), [&](Error::Parts& parts) {
      parts.step = failure.step();
      parts.context = failure.context();
    });
  } else if (failure.context().empty()) {
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
