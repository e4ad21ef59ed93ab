#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ranklink {

/// What kinds of signal a rank can set at a peer.
enum class Channel : std::uint32_t { scatter, gather, barrier, probe };
inline constexpr std::size_t kChannels = 4;

/// How the segment of a rank is laid out: a signal word per peer and channel, each in a cache line
/// of its own, then per peer and data channel (scatter, gather) an inbox of `chunk` bytes.
class SegmentLayout {
 public:
  explicit SegmentLayout(int size);

  std::size_t chunk() const { return chunk_; }  ///< bytes of one inbox
  std::size_t bytes() const { return bytes_; }  ///< of the whole segment
  std::size_t signals_bytes() const { return signals_bytes_; }

  std::size_t signal(int from, Channel channel) const;
  std::size_t inbox(int from, Channel channel) const;

 private:
  int size_;
  std::size_t chunk_;
  std::size_t signals_bytes_;
  std::size_t bytes_;
};

inline std::atomic_ref<std::uint32_t> signal_word(std::byte* segment, std::size_t offset) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(segment + offset));
}

}  // namespace ranklink
