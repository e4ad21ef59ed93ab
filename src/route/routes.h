#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "rendezvous/control_page.h"
#include "route/segment.h"
#include "route/stream.h"

namespace ranklink {

/// All routes of one rank in one group: messages to any peer and from any peer, those between two
/// ranks in their order. What algorithms are written on. Used by one thread.
///
/// A message goes out by put(), from space that reserve() gave, or from anywhere if it is small. It
/// is read where it lies: wait() gives a view of the oldest message of a peer, and release() gives
/// its space back. Inboxes and outbox have credits, so that a rank which runs ahead waits instead
/// of overwriting what a peer hasn't read.
class Routes {
 public:
  /// One way to a peer: its segment as mapped here, with its own mapping of ours, or a stream.
  struct Peer {
    std::byte* segment = nullptr;
    std::unique_ptr<Stream> stream;
    int pid = 0;  ///< where this rank can pull from its private memory
  };

  /// What a wait needs from its surroundings, besides memory. Ranks are numbered as in the group.
  struct Watch {
    /// Throws the job's Error if it has failed, or if `peer` is gone. Behind a stream that is open
    /// more may come from a peer that has left.
    std::function<void(int peer, bool stream_open)> check;
    /// Ends a wait whose deadline has passed: throws the Error that says so.
    std::function<void(int peer, const char* awaited)> late;
    /// The stream from `peer`, which is waited for, has closed: throws the Error that says why.
    std::function<void(int peer)> lost;
    /// A message of another call, or of another size, has come: throws the Error that says so.
    std::function<void(int peer, std::uint32_t tag, std::uint32_t size, std::size_t expected)>
        mismatch;
  };

  struct Setup {
    int rank = 0;
    std::vector<int> members;  ///< the group's ranks, as numbered on the control page
    std::byte* own = nullptr;  ///< this rank's segment, prepared
    std::vector<Peer> peers;   ///< by rank
    std::uint32_t sequence = 0;
    /// Ranks share cores, so a wait leaves the core to others at once.
    bool crowded = false;
  };

  /// `page` must outlive this.
  Routes(Setup setup, ControlPage& page, Watch watch);

  /// Clears what a segment of `size` ranks must hold before any peer uses it.
  static void prepare(std::byte* segment, int size, std::uint32_t sequence = 0);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  /// The largest message.
  std::size_t max_message() const { return layout_.bank_bytes(); }
  bool mapped(int peer) const { return peers_[index(peer)].segment != nullptr; }

  /// Begins a call: its messages carry `tag`, and its waits end after `timeout`.
  void begin(std::uint32_t tag, Milliseconds timeout) {
    tag_ = tag;
    timeout_ = timeout;
    deadline_.reset();
  }
  std::uint32_t tag() const { return tag_; }
  /// From now on messages are of a transfer of so many bytes in all: both sides must mean the same.
  void mark(std::uint64_t bytes) {
    tag_ = (tag_ & ~0xffu) | static_cast<std::uint32_t>(bytes * 0x9e37'79b9'7f4a'7c15u >> 56);
  }
  /// Ends it: lets peers know what they may be asleep for.
  void end();

  /// Space in the outbox for one message of `bytes`, at most max_message(). It can be put to any
  /// number of peers, until the next reserve(). Waits until peers have read what was there before.
  std::byte* reserve(std::size_t bytes);
  /// The same, or null if peers haven't read enough.
  std::byte* try_reserve(std::size_t bytes);
  /// Sends `message`: what reserve() gave, or at most SegmentLayout::kInline bytes of any memory.
  void put(int to, ByteView message);
  /// Whether put() would not wait for the peer to consume earlier messages.
  bool has_room(int to);

  /// The oldest message of `from` that isn't released, of exactly `size` bytes; waits for it.
  ByteView wait(int from, std::size_t size);
  /// The same, or nothing if it hasn't come.
  std::optional<ByteView> look(int from, std::size_t size);
  /// Gives back the oldest message of `from`.
  void release(int from);

  /// Tells a peer that `bytes` of this rank's private memory are for it to pull. They must stay
  /// until delivered() says that it has them; one at a time for each peer.
  void tell(int to, const std::byte* data, std::size_t bytes);
  static constexpr std::size_t kTold = sizeof(std::uint64_t);  ///< bytes of such a message
  /// Copies them to `to`, by one copy of the kernel's; `told` is the message that look() or wait()
  /// has given, which is released. Throws Error.
  void pull(int from, ByteView told, std::byte* to, std::size_t bytes);
  /// Whether `to` has released all that was put to it; if not, copies a part of what it pulls.
  bool delivered(int to);
  void await_delivered(int to);

  /// A long message between two ranks goes out only when its receiver is ready for it: one that
  /// isn't must not hold space that messages to others need. grant() says so to the sender.
  void grant(int from);
  /// Whether `to` has made itself ready for one more than were used.
  bool granted(int to);
  void use_grant(int to) { ++peers_[index(to)].grants_used; }

  /// Waits until `ready` says so, which depends on messages from several peers or on room for
  /// messages to them. `peer` is one of them, to be named if they don't come.
  /// `ready` may change it.
  void wait_for_any(const int& peer, const std::function<bool()>& ready) {
    wait_long(peer, true, ready);
  }

 private:
  struct Link {
    std::byte* segment = nullptr;
    const std::byte* outbox = nullptr;  // the peer's
    // Shared memory has the lower halves: a bank may be left after more messages than they count.
    std::uint64_t sent = 0;         // messages to it
    std::uint64_t credit = 0;       // of these, consumed, as last seen
    std::uint64_t last_large = 0;   // of these, the last that it reads in the outbox
    std::uint32_t received = 0;     // messages from it that were released
    std::uint32_t credited = 0;     // of these, the peer knows of
    std::uint32_t grants = 0;       // given to it
    std::uint32_t grants_used = 0;  // of those it gave
    bool grants_unsent = false;
    std::size_t large_released = 0;  // bytes of them that weren't in slots, since then
    bool credit_due = false;
    bool unsettled = false;
    std::unique_ptr<Stream> stream;
    int pid = 0;
    const std::byte* told = nullptr;  // the last that it was told of
    std::size_t told_bytes = 0;
    std::uint32_t tells = 0;  // to it
    std::uint32_t pulls = 0;  // from it
  };
  class Job;

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  void copied(int peer, const char* call, std::size_t bytes, int error);
  void push_some(Link& link, int to);
  std::uint64_t credit_of(Link& link, int peer);
  int reader_of(std::size_t bank);
  void next_bank();
  void publish_credit(Link& link);
  void publish_grants(Link& link);
  void settle();
  void progress();
  void put_by_stream(int to, Link& link, ByteView message);
  void note_unsettled(Link& link, int peer);
  /// Polls for a moment, then waits long.
  template <typename Ready>
  void wait_until(int peer, const Ready& ready);
  void wait_long(const int& peer, bool any, const std::function<bool()>& ready);
  void look_around(int peer);
  void sleep(int peer, bool any, int sleeps, const std::function<bool()>& ready);
  ByteView view(int from, std::size_t size);

  int rank_;
  std::vector<int> members_;
  std::byte* own_;
  SegmentLayout layout_;
  std::vector<Link> peers_;
  std::vector<int> streams_;  // peers behind a stream
  ControlPage* page_;
  Watch watch_;
  bool crowded_;

  std::uint32_t tag_ = 0;
  Milliseconds timeout_{};
  std::optional<Deadline> deadline_;  // made when a wait turns out to last

  std::size_t bank_ = 0;
  std::size_t used_ = 0;                               // of the bank, bytes
  std::vector<std::vector<std::uint64_t>> bank_last_;  // by bank and peer: the last message from it

  std::vector<int> unsettled_;  // whom it was put to, or who gets a credit, since settle()
};

}  // namespace ranklink
