#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "ranklink/error.hpp"
#include "ranklink/visibility.hpp"

namespace ranklink {

/// A collective that was started and goes on by itself. Its memory must stay until it is done.
/// Copies mean the same work; any thread may use one. Dropping it doesn't stop the work.
class RANKLINK_PUBLIC Work {
 public:
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Whether it has ended, well or not. Never waits.
  bool done() const;
  /// Returns when it has ended; throws its Error if it failed. Bounded by the operation's deadline.
  void wait() const;
  /// As wait(), for at most `timeout`: false if it hasn't ended by then. It goes on then.
  bool wait_for(std::chrono::milliseconds timeout) const;
  /// Why it failed; nothing while it goes on, or if it ended well.
  std::optional<Error> error() const;

  class Impl;
  explicit Work(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ranklink
