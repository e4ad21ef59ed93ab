#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ranklink {

/// The head of a message in a slot of an inbox. Its owner polls `sequence`, which is stored last.
struct MessageHead {
  std::uint32_t sequence;  ///< counts the messages of one rank to another
  std::uint32_t tag;       ///< what call it belongs to
  std::uint32_t size;      ///< bytes
  std::uint32_t place;     ///< in the sender's outbox, if the message doesn't fit the slot
};

/// A large message on its way from its owner's memory straight into its reader's. The reader begins
/// at the front; the owner, if it has nothing else to do, copies too, from the back.
struct CopyJob {
  std::uint64_t address;  ///< where the reader wants it, in its private memory
  std::uint64_t claims;   ///< number of the job << 32 | pieces from the front << 16 | from the back
  std::uint32_t pushed;   ///< of those from the back, how many are there

  static constexpr std::uint64_t kFront = 1 << 16;
  static constexpr std::uint64_t kMost = 0xffff;
  static std::size_t front(std::uint64_t claims) { return claims >> 16 & kMost; }
  static std::size_t back(std::uint64_t claims) { return claims & kMost; }
  static std::uint32_t number(std::uint64_t claims) {
    return static_cast<std::uint32_t>(claims >> 32);
  }
};

/// How the segment of a rank is laid out:
///  - a line for each peer, which the peer writes: its credit, how many of this rank's messages it
///    has consumed; and its grants, how many long messages it has made itself ready for,
///  - a line for each peer with the CopyJob of what this rank reads from it,
///  - an inbox for each peer: a ring of slots, each a head and room for a small message,
///  - the outbox: larger messages of this rank, which peers read where they are. It consists of
///    banks that are used in turn.
class SegmentLayout {
 public:
  static constexpr std::size_t kLine = 64;
  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::size_t kSlotBytes = 256;
  /// The largest message that travels in a slot.
  static constexpr std::size_t kInline = kSlotBytes - sizeof(MessageHead);
  static constexpr std::size_t kBanks = 4;

  explicit SegmentLayout(int size);

  std::size_t bytes() const { return outbox_ + outbox_bytes(); }  ///< of the whole segment
  std::size_t bank_bytes() const { return bank_bytes_; }          ///< and the largest message
  std::size_t outbox_bytes() const { return kBanks * bank_bytes_; }
  std::size_t outbox() const { return outbox_; }
  /// What must be cleared before a segment is used.
  std::size_t control_bytes() const { return outbox_; }

  std::size_t credit(int peer) const { return static_cast<std::size_t>(peer) * kLine; }
  std::size_t grants(int peer) const { return credit(peer) + sizeof(std::uint32_t); }
  std::size_t job(int peer) const { return jobs_ + static_cast<std::size_t>(peer) * kLine; }
  std::size_t slot(int from, std::uint32_t sequence) const {
    return inboxes_ + (static_cast<std::size_t>(from) * kSlots + sequence % kSlots) * kSlotBytes;
  }

 private:
  std::size_t jobs_;
  std::size_t inboxes_;
  std::size_t outbox_;
  std::size_t bank_bytes_;
};

/// A word of a segment, which ranks share.
inline std::atomic_ref<std::uint32_t> word_at(std::byte* segment, std::size_t offset) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(segment + offset));
}

}  // namespace ranklink
