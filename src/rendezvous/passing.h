#pragma once

#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "rendezvous/frame.h"
#include "rendezvous/messages.h"

namespace ranklink {

/// Passes descriptors from rank to rank, in a window: the kernel limits how many may be in flight
/// between a user's processes, and a receiver near its own limit can take only a few at once.
class Passing {
 public:
  using Send = std::function<void(int to, Bytes payload, std::vector<SharedFd> fds)>;

  Passing(int size, Send send) : targets_(static_cast<std::size_t>(size)), send_(std::move(send)) {}

  /// `from` gives one descriptor to each of the peers. Throws Error(protocol_violation).
  void post(int from, const Posting& posting, const SharedFd& fd);
  /// `from` wants a stream to each of the peers; it gets one when the peer has asked as well.
  void broker(int from, const Posting& posting);
  /// `by` has received and taken care of the first `count` of those last sent to it.
  void acknowledge(int by, std::uint32_t count);

 private:
  struct Item {
    Passed::Item what;
    SharedFd fd;
  };
  struct Target {
    std::deque<Item> waiting;
    std::vector<Item> in_flight;
    std::size_t batch = 32;
    bool queued = false;
  };

  void add(int to, Item item);
  void pump();
  void check_peer(int from, int peer) const;

  std::vector<Target> targets_;
  std::deque<int> ready_;  // targets with something waiting and nothing in flight
  std::size_t in_flight_ = 0;
  std::map<std::tuple<int, int, std::uint32_t>, int>
      wanted_streams_;  // lower, higher, tag: by whom
  Send send_;
};

}  // namespace ranklink
