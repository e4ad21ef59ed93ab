#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "collective/algorithm.h"
#include "collective/reduce.h"

namespace ranklink {

/// Results that are larger than this, bytes, are written past the caches: nobody reads them soon,
/// and a line that isn't cached needn't be read before it is written.
inline constexpr std::size_t kStreamingBytes = 4 << 20;

inline const std::byte* input_of(const Call& call) {
  return static_cast<const std::byte*>(call.input);
}
inline std::byte* output_of(const Call& call) { return static_cast<std::byte*>(call.output); }

/// memcpy that takes no bytes from nowhere, and leaves what is in place alone.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                       bool streaming = false) {
  if (bytes == 0 || to == from) return;
  streaming ? copy_streaming(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
}

/// What is cut into pieces of at most `piece` elements; there is one piece at least, so that each
/// call exchanges messages, by which its ranks notice that they differ.
class Pieces {
 public:
  Pieces(std::size_t count, std::size_t piece) : count_(count), piece_(piece) {}
  std::size_t number() const { return count_ <= piece_ ? 1 : (count_ + piece_ - 1) / piece_; }
  std::size_t begin(std::size_t i) const { return i * piece_; }
  std::size_t size(std::size_t i) const {
    return begin(i) >= count_ ? 0 : std::min(piece_, count_ - begin(i));
  }

 private:
  std::size_t count_;
  std::size_t piece_;
};

/// Bytes of a piece when a rank puts `messages` pieces at a time: they fit a bank, or slots.
/// Divisions are left out of small calls, which they would lengthen by a tenth each.
inline std::size_t piece_bytes(const Routes& routes, std::size_t messages) {
  constexpr std::size_t kMost = 128 << 10;  // bench/README.md: what was tried
  constexpr std::size_t kLeast = 192;
  static_assert(kLeast <= SegmentLayout::kInline);
  const std::size_t share = messages < 2 ? routes.max_message() : routes.max_message() / messages;
  return std::clamp(share, kLeast, kMost) / SegmentLayout::kLine * SegmentLayout::kLine;
}
inline std::size_t piece_elements(const Routes& routes, const Call& call, std::size_t messages) {
  return piece_bytes(routes, messages) >> std::countr_zero(size_of(call.type));
}

/// A message of these bytes: they themselves if they fit a slot, else a copy in the outbox.
inline ByteView as_message(Workspace& work, const std::byte* data, std::size_t bytes) {
  if (bytes <= SegmentLayout::kInline) return {data, bytes};
  std::byte* place = work.routes.reserve(bytes);
  work.outbox.copy(place, data, bytes);
  return {place, bytes};
}

/// Puts it to all, beginning behind oneself: not all ranks write to rank 0 first.
inline void put_to_all(Routes& routes, ByteView message) {
  const int size = routes.size();
  for (int i = 1; i < size; ++i) routes.put((routes.rank() + i) % size, message);
}

/// Calls `each` for all peers, beginning behind oneself.
template <typename Each>
void for_peers(const Routes& routes, const Each& each) {
  const int size = routes.size();
  for (int i = 1; i < size; ++i) each((routes.rank() + i) % size);
}

/// Waits for a message of `bytes` from each peer, reduces all with this rank's `mine`, in the order
/// of ranks, to `output` and, if it isn't null, `second`, and releases them.
inline void reduce_messages(Workspace& work, const Call& call, const std::byte* mine,
                            std::byte* output, std::byte* second, std::size_t count,
                            bool streaming) {
  Routes& routes = work.routes;
  const std::size_t bytes = count * size_of(call.type);
  work.inputs[static_cast<std::size_t>(routes.rank())] = mine;
  for_peers(routes, [&](int peer) {
    work.inputs[static_cast<std::size_t>(peer)] = routes.wait(peer, bytes).data();
  });
  reduce({call.type, call.op}, output, second, work.inputs, count, streaming);
  for_peers(routes, [&](int peer) { routes.release(peer); });
}

/// Returns when all ranks are here.
inline void meet(Routes& routes) {
  put_to_all(routes, {});
  for_peers(routes, [&](int peer) {
    routes.wait(peer, 0);
    routes.release(peer);
  });
}

}  // namespace ranklink
