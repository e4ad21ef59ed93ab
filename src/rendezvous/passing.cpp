#include "rendezvous/passing.h"

#include <algorithm>

#include "base/socket.h"

namespace ranklink {
namespace {

// Well below the 1024 descriptors that an ordinary user's processes may have in flight together.
constexpr std::size_t kWindow = 256;

}  // namespace

void Passing::check_peer(int from, int peer) const {
  if (peer < 0 || peer >= static_cast<int>(targets_.size()) || peer == from) {
    Reader::fail("a descriptor for a rank that isn't there");
  }
}

void Passing::post(int from, const Posting& posting, const SharedFd& fd) {
  for (const int peer : posting.peers) {
    check_peer(from, peer);
    add(peer, {{.from = from, .tag = posting.tag, .withheld = fd == nullptr}, fd});
  }
  pump();
}

void Passing::broker(int from, const Posting& posting) {
  for (const int peer : posting.peers) {
    check_peer(from, peer);
    const auto key = std::make_tuple(std::min(from, peer), std::max(from, peer), posting.tag);
    const auto [entry, first] = wanted_streams_.try_emplace(key, from);
    if (first || entry->second == from) continue;
    wanted_streams_.erase(entry);
    auto [one, other] = make_socketpair();
    add(from, {{.from = peer, .tag = posting.tag}, std::make_shared<const Fd>(std::move(one))});
    add(peer, {{.from = from, .tag = posting.tag}, std::make_shared<const Fd>(std::move(other))});
  }
  pump();
}

void Passing::acknowledge(int by, std::uint32_t count) {
  Target& target = targets_[static_cast<std::size_t>(by)];
  if (count > target.in_flight.size()) Reader::fail("more descriptors acknowledged than were sent");
  in_flight_ -= target.in_flight.size();
  if (count < target.in_flight.size()) {
    // The receiver is at its limit: offer fewer at once, and give up on one that it can't take
    // alone.
    if (target.batch == 1) {
      target.in_flight.front().what.lost = true;
      target.in_flight.front().fd = nullptr;
    }
    target.batch = std::max<std::size_t>(1, count);
    target.waiting.insert(target.waiting.begin(), target.in_flight.begin() + count,
                          target.in_flight.end());
  }
  target.in_flight.clear();
  if (!target.waiting.empty() && !target.queued) {
    target.queued = true;
    ready_.push_back(by);
  }
  pump();
}

void Passing::add(int to, Item item) {
  Target& target = targets_[static_cast<std::size_t>(to)];
  target.waiting.push_back(std::move(item));
  if (!target.queued && target.in_flight.empty()) {
    target.queued = true;
    ready_.push_back(to);
  }
}

void Passing::pump() {
  while (!ready_.empty() && in_flight_ < kWindow) {
    const int to = ready_.front();
    ready_.pop_front();
    Target& target = targets_[static_cast<std::size_t>(to)];
    target.queued = false;
    Passed passed;
    std::vector<SharedFd> fds;
    while (!target.waiting.empty() && target.in_flight.size() < target.batch) {
      Item& item = target.waiting.front();
      passed.items.push_back(item.what);
      if (item.fd) fds.push_back(item.fd);
      target.in_flight.push_back(std::move(item));
      target.waiting.pop_front();
    }
    in_flight_ += target.in_flight.size();
    send_(to, passed.encode(), std::move(fds));
  }
}

}  // namespace ranklink
