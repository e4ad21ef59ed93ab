#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "autopsy/crash.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/mapping.h"
#include "ranklink/collective.hpp"
#include "ranklink/error.hpp"

namespace ranklink {

/// A call of a collective: the how manieth of its group it is.
struct Operation {
  Collective collective = Collective::barrier;
  std::uint16_t group = 0;  ///< 0 for the job's first group; others have a number that is a hash
  std::uint64_t sequence = 0;
};

/// One small memfd that all ranks of a host share, a slot a rank: the step it is in, whether it
/// lives, how it failed. Whoever waits watches it, so a failure anywhere releases everyone.
///
/// Memory that peers write: nothing read from it is used as an index or a length without a check.
class ControlPage {
 public:
  enum class State : std::uint32_t { absent, alive, left };

  /// Makes a page for `size` ranks.
  static ControlPage create(int size);
  /// Takes one that a peer made. Throws Error(protocol_violation).
  static ControlPage open(Fd fd, int size);

  ControlPage(ControlPage&&) noexcept = default;
  ControlPage& operator=(ControlPage&&) noexcept = default;

  int fd() const { return fd_.get(); }
  int size() const { return size_; }

  /// The rank's own slot.
  void set_step(int rank, const std::string& step);
  /// The rank enters a call; its step is that call. end_operation() says that it is back in its
  /// program.
  void begin_operation(int rank, Operation operation);
  void end_operation(int rank, Operation operation);
  void set_state(int rank, State state);

  /// As in `try`, `all_reduce #5`, or `its program, after all_reduce #5`.
  std::string step(int rank) const;
  State state(int rank) const;
  /// The call that the rank is in, or was in last; nothing before its first.
  std::optional<Operation> operation(int rank) const;
  /// True once the kernel has marked the rank's liveness word, or the rank has said that it
  /// crashes: its process ends without leaving. While a core file is written, only the latter
  /// tells.
  bool died(int rank) const;
  /// What the rank could say of its crash, if it crashed.
  std::optional<Crash> crash(int rank) const;

  /// Writes the rank's reason to fail, publishes it if it is the first of all, and wakes everyone.
  /// A primary reason replaces nothing: the first published one stands.
  /// Returns whether it is the one that all will report.
  bool publish_failure(int slot, const Error& error);
  bool failed() const;
  /// The reason that won, if the job has failed. Cheap when it hasn't.
  std::optional<Error> failure() const;

  static constexpr int kAnyRank = -1;
  /// Sleeps until `awaited` wakes this rank, or a failure does, at most `slice`; not if `ready`
  /// says, once peers can see the sleeper, that there is nothing to wait for.
  void sleep(int rank, int awaited, const std::function<bool()>& ready, Deadline deadline,
             std::chrono::nanoseconds slice) const;
  /// Stands between what a rank stores in shared memory and its calls of wake(): either the sleeper
  /// sees the one, or wake() sees the sleeper.
  static void order_before_wake();
  /// `from` has done something that `rank` may wait for: wakes it if it sleeps for just that.
  void wake(int rank, int from);
  void ring_all();

  FutexWord& liveness_word(int rank);
  CrashSlot& crash_slot(int rank);

 private:
  struct Header;
  struct Slot;

  ControlPage(Fd fd, Mapping mapping, int size);
  Header& header() const;
  Slot& slot(int rank) const;

  Fd fd_;
  Mapping mapping_;
  int size_ = 0;
  // Threads of this process that sleep, each in a group of its own, and those that fail.
  struct Sleepers {
    std::mutex mutex;
    int count = 0;
    std::mutex publishing;
  };
  std::unique_ptr<Sleepers> sleepers_ = std::make_unique<Sleepers>();
};

/// A thread whose only work is to exist: the kernel marks the rank's liveness word when it dies,
/// within a fraction of a millisecond of a SIGKILL and long before sockets close.
class LivenessBeacon {
 public:
  LivenessBeacon(ControlPage& page, int rank);
  /// Ends the thread after clearing the word, so that the end isn't taken for a death.
  ~LivenessBeacon();
  LivenessBeacon(const LivenessBeacon&) = delete;
  LivenessBeacon& operator=(const LivenessBeacon&) = delete;

 private:
  FutexWord stop_{0};
  std::thread thread_;
};

}  // namespace ranklink
