#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace ranklink {

using Milliseconds = std::chrono::milliseconds;

/// A point in time after which a wait must end. Every call that can block takes one.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// A century or more is never: it could overflow the clock.
  template <typename Rep, typename Period>
  static Deadline after(std::chrono::duration<Rep, Period> wait) {
    constexpr std::chrono::hours kCentury(24 * 365 * 100);
    if (wait >= kCentury) return never();
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(wait));
  }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

  /// What is left, never negative.
  Clock::duration left() const {
    return is_never() ? Clock::duration::max() : std::max(at_ - Clock::now(), Clock::duration{});
  }

  /// For poll and epoll_wait: milliseconds rounded up, at most `slice`.
  int poll_ms(Milliseconds slice = Milliseconds(60'000)) const {
    if (is_never()) return static_cast<int>(slice.count());
    return static_cast<int>(std::min(std::chrono::ceil<Milliseconds>(left()), slice).count());
  }

  /// For futex and ppoll: what is left, at most `slice`.
  timespec slice(std::chrono::nanoseconds slice) const {
    const auto wait = is_never() ? slice : std::min<std::chrono::nanoseconds>(left(), slice);
    return {.tv_sec = static_cast<time_t>(wait.count() / 1'000'000'000),
            .tv_nsec = static_cast<long>(wait.count() % 1'000'000'000)};
  }

  Deadline earlier(Deadline other) const { return Deadline(std::min(at_, other.at_)); }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace ranklink
