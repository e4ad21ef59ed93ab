#include "group/worker.h"

#include <csignal>
#include <system_error>

#include "base/error.h"

namespace ranklink {

void Work::Impl::end(std::optional<Error> error) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

void Work::Impl::refuse_if_forked() const {
  if (!mark_->forked()) return;
  throw Error({.code = ErrorCode::group_closed,
               .cause = "this process was forked from the one that started the work",
               .remedy = "wait for it in the process that started it"});
}

bool Work::Impl::done() const {
  if (mark_->forked()) return true;
  const std::lock_guard lock(mutex_);
  return done_;
}

bool Work::Impl::wait_for(std::optional<std::chrono::milliseconds> timeout) const {
  refuse_if_forked();
  std::unique_lock lock(mutex_);
  const auto done = [&] { return done_; };
  // Very long is for ever: it could overflow the clock.
  if (!timeout || *timeout > std::chrono::hours(24 * 365)) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_for(lock, *timeout, done)) {
    return false;
  }
  if (error_) throw *error_;
  return true;
}

std::optional<Error> Work::Impl::error() const {
  try {
    refuse_if_forked();
  } catch (const Error& error) {
    return error;
  }
  const std::lock_guard lock(mutex_);
  return error_;
}

Work::Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work&) = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

bool Work::done() const { return impl_->done(); }
void Work::wait() const { impl_->wait_for(std::nullopt); }
bool Work::wait_for(std::chrono::milliseconds timeout) const { return impl_->wait_for(timeout); }
std::optional<Error> Work::error() const { return impl_->error(); }

Worker::Worker(std::shared_ptr<const ForkMark> mark) : mark_(std::move(mark)) {
  // Signals are for the program's own threads, but for those that a thread brings upon itself.
  sigset_t most;
  sigset_t before;
  sigfillset(&most);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGABRT}) {
    sigdelset(&most, own);
  }
  ::pthread_sigmask(SIG_SETMASK, &most, &before);
  std::optional<Error> error;
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::system_error& thrown) {
    error = system_error("a thread for what is started", thrown.code().value(),
                         "raise the limit of processes (--pids-limit, ulimit -u)");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) throw *error;
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::shared_ptr<Work::Impl> Worker::start(Task task) {
  auto work = std::make_shared<Work::Impl>(mark_);
  const std::lock_guard lock(mutex_);
  if (closed_) {
    work->end(closed_);
    return work;
  }
  pending_.fetch_add(1, std::memory_order_release);
  items_.push_back({std::move(task), work});
  changed_.notify_all();
  return work;
}

void Worker::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return idle(); });
}

void Worker::close(const Error& closed) {
  const std::lock_guard lock(mutex_);
  closed_ = closed;
  for (const Item& item : items_) {
    item.work->end(closed);
    pending_.fetch_sub(1, std::memory_order_release);
  }
  items_.clear();
  changed_.notify_all();
}

void Worker::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    std::optional<Error> error;
    try {
      item.task();
    } catch (const Error& thrown) {
      error = thrown;
    } catch (const std::exception& thrown) {
      error = Error({.code = ErrorCode::rank_failed,
                     .cause = thrown.what(),
                     .remedy = "look at what this process may use: memory, threads"});
    }
    lock.lock();
    pending_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
    item.work->end(std::move(error));
  }
}

}  // namespace ranklink
