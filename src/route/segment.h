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

/// How the segment of a rank is laid out:
///  - a line for each peer, which the peer writes: its credit, how many of this rank's messages it
///    has consumed; and its grants, how many long messages it has made itself ready for,
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
  std::size_t slot(int from, std::uint32_t sequence) const {
    return inboxes_ + (static_cast<std::size_t>(from) * kSlots + sequence % kSlots) * kSlotBytes;
  }

 private:
  std::size_t inboxes_;
  std::size_t outbox_;
  std::size_t bank_bytes_;
};

/// A word of a segment, which ranks share.
inline std::atomic_ref<std::uint32_t> word_at(std::byte* segment, std::size_t offset) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(segment + offset));
}

}  // namespace ranklink
