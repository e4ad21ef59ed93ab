#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fork.h"
#include "ranklink/work.hpp"

namespace ranklink {

/// The state of one started call, shared by its handles and the worker.
class Work::Impl {
 public:
  explicit Impl(std::shared_ptr<const ForkMark> mark) : mark_(std::move(mark)) {}

  /// Ends it; wakes who waits. The first end counts.
  void end(std::optional<Error> error);
  bool done() const;
  bool wait_for(std::optional<std::chrono::milliseconds> timeout) const;
  std::optional<Error> error() const;

 private:
  /// In a forked process nobody does the work, and who held the lock isn't there.
  void refuse_if_forked() const;

  std::shared_ptr<const ForkMark> mark_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::optional<Error> error_;
};

/// Does the calls that a group has started, one after the other, in a thread of its own.
class Worker {
 public:
  /// `body` throws Error.
  using Task = std::function<void()>;

  explicit Worker(std::shared_ptr<const ForkMark> mark);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// Waits for the task that is being done; what waits behind it ends with `closed`.
  ~Worker();

  std::shared_ptr<Work::Impl> start(Task task);
  /// Whether nothing is being done or waits.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  void wait_until_idle();
  /// No task is begun any more: those that wait end with this Error.
  void close(const Error& closed);

 private:
  struct Item {
    Task task;
    std::shared_ptr<Work::Impl> work;
  };
  void loop();

  std::shared_ptr<const ForkMark> mark_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::atomic<int> pending_{0};
  std::optional<Error> closed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ranklink
