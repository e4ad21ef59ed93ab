#include "route/routes.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>

namespace ranklink {
namespace {

// A wait spins while the answer may come from a running peer, then lets others run, then sleeps: 8
// ranks on 2 cores make progress.
constexpr int kSpins = 200;
constexpr int kYields = 20;
// Who is waited for wakes the sleeper, and so does a failure; a slice only bounds what is lost if
// that ever fails, so it may grow: hundreds of ranks that look around every millisecond would take
// all the time there is.
constexpr std::chrono::milliseconds kFirstSleep{2};
constexpr std::chrono::milliseconds kLongestSleep{64};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Routes::Routes(int rank, int size, std::byte* own, std::vector<std::unique_ptr<Route>> routes,
               ControlPage& page, Watch watch, std::uint32_t sequence)
    : rank_(rank),
      size_(size),
      own_(own),
      layout_(size),
      routes_(std::move(routes)),
      page_(&page),
      watch_(std::move(watch)),
      sequence_() {
  sequence_.fill(sequence);
  for (int peer = 0; peer < size; ++peer) {
    const auto& route = routes_[static_cast<std::size_t>(peer)];
    if (route && route->fd() >= 0) streams_.push_back(peer);
  }
}

void Routes::progress() {
  for (const int peer : streams_) routes_[static_cast<std::size_t>(peer)]->receive();
}

// One turn of waiting for `peer`: the longer it has lasted, the more it leaves the processor alone.
void Routes::idle(int peer, std::uint32_t seen, int round, Deadline deadline) {
  if (round < kSpins) {
    pause_cpu();
    return;
  }
  watch_.check(peer, routes_[static_cast<std::size_t>(peer)]->fd() >= 0);
  if (routes_[static_cast<std::size_t>(peer)]->closed()) watch_.lost(peer);
  if (deadline.passed()) watch_.late(peer, "its signal");
  if (round < kSpins + kYields) {
    ::sched_yield();
  } else if (streams_.empty()) {
    const int sleeps = std::min(round - kSpins - kYields, 5);
    page_->wait_doorbell(rank_, peer, seen, deadline,
                         std::min(kFirstSleep * (1 << sleeps), kLongestSleep));
  } else {
    std::vector<pollfd> polls;
    for (const int stream : streams_) {
      polls.push_back({routes_[static_cast<std::size_t>(stream)]->fd(), POLLIN, 0});
    }
    // A mapped peer's signal doesn't end this poll, so it is short.
    ::poll(polls.data(), polls.size(), 1);
  }
}

void Routes::until_sent(int to, const std::function<bool()>& send, Deadline deadline) {
  while (!send()) {
    progress();  // the peer may be sending to this rank, and wait for room itself
    watch_.check(to, routes_[static_cast<std::size_t>(to)]->fd() >= 0);
    if (deadline.passed()) watch_.late(to, "room to send");
    std::vector<pollfd> polls;
    for (const int stream : streams_) {
      const short events = stream == to ? POLLIN | POLLOUT : POLLIN;
      polls.push_back({routes_[static_cast<std::size_t>(stream)]->fd(), events, 0});
    }
    ::poll(polls.data(), polls.size(), deadline.poll_ms(kFirstSleep));
  }
}

void Routes::put(int to, Channel channel, ByteView bytes, Deadline deadline) {
  Route& route = *routes_[static_cast<std::size_t>(to)];
  std::size_t done = 0;
  const std::size_t offset = layout_.inbox(rank_, channel);
  until_sent(
      to, [&] { return route.put(offset, bytes, done); }, deadline);
}

void Routes::signal(int to, Channel channel, std::uint32_t value, Deadline deadline) {
  Route& route = *routes_[static_cast<std::size_t>(to)];
  const std::size_t offset = layout_.signal(rank_, channel);
  until_sent(
      to, [&] { return route.signal(offset, value); }, deadline);
  page_->ring(to, rank_);
}

void Routes::wait(int from, Channel channel, std::uint32_t value, Deadline deadline) {
  const auto word = signal_word(own_, layout_.signal(from, channel));
  for (int round = 0;; ++round) {
    const std::uint32_t seen = page_->doorbell_value(rank_);
    if (!streams_.empty()) progress();
    // Sequence numbers wrap, so the difference counts.
    if (static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) >= 0) return;
    idle(from, seen, round, deadline);
  }
}

}  // namespace ranklink
