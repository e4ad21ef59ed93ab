#include "exchange/trial.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstring>

#include "base/socket.h"
#include "exchange/pattern.h"

namespace ranklink {
namespace {

// Each peer has a slot at each of three places of a segment: its begin, its middle and its end. A
// slot holds what the owner wrote for the peer to load, what the peer stored, and a signal.
constexpr std::size_t kPlaces = 3;
constexpr std::size_t kPatternBytes = 64;
constexpr std::size_t kSlotBytes = 3 * kPatternBytes;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kStreamBytes = 256;
constexpr Milliseconds kSlice{20};

constexpr const char* kWrongMemory =
    "this is a fault of the driver or of the sandbox under these ranks: report it, and set "
    "RANKLINK_MECHANISM=none meanwhile";

std::size_t area_bytes(int size) {
  const std::size_t bytes = static_cast<std::size_t>(size) * kSlotBytes;
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::size_t slot_offset(const Memory& memory, int size, std::size_t place, int peer) {
  const std::size_t last = memory.size() - area_bytes(size);
  return last / (kPlaces - 1) * place / kPageBytes * kPageBytes +
         static_cast<std::size_t>(peer) * kSlotBytes;
}

std::atomic_ref<std::uint32_t> signal_at(std::byte* slot) {
  return std::atomic_ref<std::uint32_t>(
      *reinterpret_cast<std::uint32_t*>(slot + 2 * kPatternBytes));
}

class Trial {
 public:
  explicit Trial(Surroundings& around) : around_(around) {}

  void prepare(const Memory& own, int peer) const {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::size_t offset = slot_offset(own, around_.size(), place, peer);
      std::byte* slot = own.data() + offset;
      write_pattern(key(around_.rank(), peer, kLoadAccess), offset, {slot, kPatternBytes});
      std::memset(slot + kPatternBytes, 0, kSlotBytes - kPatternBytes);
    }
  }

  /// This rank's access to a peer's memory.
  Verdict access(const Memory& theirs, int peer) const {
    const int me = around_.rank();
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::size_t offset = slot_offset(theirs, around_.size(), place, me);
      std::byte* slot = theirs.data() + offset;
      if (const auto wrong =
              check_pattern(key(peer, me, kLoadAccess), offset, {slot, kPatternBytes})) {
        return no_verdict(
            me, fmt::format("what is mapped is not the memory of rank {}: {}", peer, *wrong),
            kWrongMemory);
      }
      const PatternKey store = key(me, peer, kStoreAccess);
      write_pattern(store, offset + kPatternBytes, {slot + kPatternBytes, kPatternBytes});
      signal_at(slot).store(pattern_signal(store), std::memory_order_release);
    }
    return {.yes = true, .tried = true};
  }

  /// A peer's access to this rank's memory.
  Verdict seen(const Memory& own, int peer) const {
    const int me = around_.rank();
    const PatternKey store = key(peer, me, kStoreAccess);
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::size_t offset = slot_offset(own, around_.size(), place, peer);
      std::byte* slot = own.data() + offset;
      if (signal_at(slot).load(std::memory_order_acquire) != pattern_signal(store)) {
        return no_verdict(me,
                          fmt::format("a signal that rank {} set did not arrive in the memory "
                                      "of rank {}",
                                      peer, me),
                          kWrongMemory);
      }
      if (const auto wrong =
              check_pattern(store, offset + kPatternBytes, {slot + kPatternBytes, kPatternBytes})) {
        return no_verdict(me,
                          fmt::format("what rank {} stored did not arrive in the memory of rank "
                                      "{}: {}",
                                      peer, me, *wrong),
                          kWrongMemory);
      }
    }
    return {.yes = true, .tried = true};
  }

  Verdict send(const Fd& stream, int peer) const {
    std::array<std::byte, kStreamBytes> bytes;
    write_pattern(key(around_.rank(), peer, kStreamAccess), 0, bytes);
    std::size_t sent = 0;
    if (send_some(stream.get(), bytes, {}, sent) != Io::some || sent != bytes.size()) {
      return no_verdict(around_.rank(), fmt::format("the stream to rank {} takes nothing", peer),
                        "look at the output of that rank");
    }
    return {.yes = true, .tried = true};
  }

  Verdict received(const Fd& stream, int peer, Deadline deadline) const {
    std::array<std::byte, kStreamBytes> bytes;
    std::size_t filled = 0;
    std::vector<Fd> fds;
    while (filled < bytes.size()) {
      around_.client.check();
      std::size_t received = 0;
      bool dropped = false;
      const Io io =
          receive_some(stream.get(), std::span(bytes).subspan(filled), fds, received, dropped);
      filled += received;
      if (io == Io::closed || deadline.passed()) {
        return no_verdict(around_.rank(),
                          fmt::format("the stream from rank {} {} before its pattern had come",
                                      peer, io == Io::closed ? "closed" : "was silent"),
                          "look at the output of that rank, and at what lies between them");
      }
      if (io == Io::would_block) wait_for(stream.get(), POLLIN, deadline, kSlice);
    }
    if (const auto wrong = check_pattern(key(peer, around_.rank(), kStreamAccess), 0, bytes)) {
      return no_verdict(around_.rank(),
                        fmt::format("the stream from rank {} is garbled: {}", peer, *wrong),
                        "look at what lies between these ranks");
    }
    return {.yes = true, .tried = true};
  }

 private:
  PatternKey key(int from, int to, std::uint32_t access) const {
    return {around_.client.seating().job, from, to, access, around_.trial};
  }

  Surroundings& around_;
};

}  // namespace

std::size_t trial_bytes(int size) { return kPlaces * area_bytes(size); }

VerdictRow try_mechanism(Surroundings& around, Circle& circle, const Mechanism& mechanism,
                         const Offer& offer, const std::vector<int>& peers,
                         std::map<int, Link>& links, Deadline deadline) {
  around.trial = circle.next_tag();
  const Trial trial(around);
  const Party me = around.party(around.rank());
  std::set<int> importing;
  std::set<int> exporting;
  VerdictRow row;
  for (const int peer : peers) {
    // What is later read and written in it is found by the size that both have computed.
    if (mechanism.maps &&
        offer.handles[static_cast<std::size_t>(peer)].size != offer.memory->size()) {
      Reader::fail("memory of an unexpected size");
    }
    auto to_peer = mechanism.propose(me, around.party(peer));
    auto from_peer = mechanism.propose(around.party(peer), me);
    if (!to_peer) importing.insert(peer);
    if (!from_peer) exporting.insert(peer);
    row.entries.push_back({peer, to_peer.value_or(Verdict{}), from_peer.value_or(Verdict{})});
    if (mechanism.maps && !from_peer) trial.prepare(*offer.memory, peer);
  }
  // A peer may get at this memory without asking, so it must be ready before anybody starts.
  circle.submit(around.client.step() + "/ready", {}, deadline);
  Attempts attempts = mechanism.connect(around, circle, offer, importing, exporting, deadline);
  for (VerdictRow::Entry& entry : row.entries) {
    const auto found = attempts.find(entry.peer);
    if (found == attempts.end()) continue;
    Attempt& attempt = found->second;
    if (attempt.no) {
      entry.to_peer = *attempt.no;
      entry.linked = false;
      if (!mechanism.maps)
        entry.from_peer = *attempt.no;  // a stream that isn't there serves nobody
    } else {
      entry.to_peer = mechanism.maps ? trial.access(*attempt.link.memory, entry.peer)
                                     : trial.send(attempt.link.stream, entry.peer);
    }
  }
  circle.submit(around.client.step() + "/tried", {}, deadline);
  for (VerdictRow::Entry& entry : row.entries) {
    if (mechanism.maps) {
      if (exporting.contains(entry.peer)) entry.from_peer = trial.seen(*offer.memory, entry.peer);
    } else if (const auto found = attempts.find(entry.peer);
               found != attempts.end() && !found->second.no) {
      entry.from_peer = trial.received(found->second.link.stream, entry.peer, deadline);
    }
    if (const auto found = attempts.find(entry.peer);
        found != attempts.end() && !found->second.no) {
      links[entry.peer] = std::move(found->second.link);
    }
  }
  return row;
}

}  // namespace ranklink
