#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "rendezvous/control_page.h"
#include "route/route.h"
#include "route/segment.h"

namespace ranklink {

/// All routes of one rank, and its own segment: put and signal at any peer, wait for any peer's
/// signal. What algorithms are written on. Used by one thread.
class Routes {
 public:
  /// What a wait needs from its surroundings, besides memory.
  struct Watch {
    /// Throws the job's Error if it has failed, or if `peer` is gone. Behind a stream that is open
    /// more may come from a peer that has left.
    std::function<void(int peer, bool stream_open)> check;
    /// Ends a wait whose deadline has passed: throws the Error that says so.
    std::function<void(int peer, const char* awaited)> late;
    /// The stream from `peer`, which is waited for, has closed: throws the Error that says why.
    std::function<void(int peer)> lost;
  };

  /// `own` is this rank's segment, whose signals hold `sequence`, after which collectives are
  /// counted; `routes` by peer, empty for the rank itself. `page` must outlive this.
  Routes(int rank, int size, std::byte* own, std::vector<std::unique_ptr<Route>> routes,
         ControlPage& page, Watch watch, std::uint32_t sequence = 0);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const SegmentLayout& layout() const { return layout_; }
  /// Counts the uses of a channel, from 1: the values of its signals. Each channel has its own
  /// count, so that a signal is never more than one behind, however often the other channels are
  /// used.
  std::uint32_t next_sequence(Channel channel) {
    return ++sequence_[static_cast<std::size_t>(channel)];
  }

  /// Writes into the inbox that `to` has for this rank.
  void put(int to, Channel channel, ByteView bytes, Deadline deadline);
  void signal(int to, Channel channel, std::uint32_t value, Deadline deadline);
  /// Returns when `from` has signalled `value` or a later one.
  void wait(int from, Channel channel, std::uint32_t value, Deadline deadline);
  /// This rank's own inbox for `from`.
  const std::byte* inbox(int from, Channel channel) const {
    return own_ + layout_.inbox(from, channel);
  }

 private:
  void progress();
  void idle(int peer, std::uint32_t seen, int round, Deadline deadline);
  void until_sent(int to, const std::function<bool()>& send, Deadline deadline);

  int rank_;
  int size_;
  std::byte* own_;
  SegmentLayout layout_;
  std::vector<std::unique_ptr<Route>> routes_;
  std::vector<int> streams_;  // peers whose route has a socket
  ControlPage* page_;
  Watch watch_;
  std::array<std::uint32_t, kChannels> sequence_;
};

}  // namespace ranklink
