#include <algorithm>
#include <cstring>

#include "collective/collectives.h"

namespace ranklink {

// Reduce-scatter, then all-gather, on one block at a time that fits the inboxes. Each rank sums one
// part of the block, in rank order.
//
// Inboxes are used again block after block without a credit: a rank writes into a peer's scatter
// inbox only after that peer's gather signal of the block before, which the peer sets after it has
// summed; and into its gather inbox only after the peer's scatter signal of this block, which the
// peer sets after it has copied the block before out.
void all_reduce_sum(Routes& routes, std::span<float> data, Deadline deadline) {
  const int size = routes.size();
  const int me = routes.rank();
  const std::size_t chunk = routes.layout().chunk() / sizeof(float);
  const std::size_t block = chunk * static_cast<std::size_t>(size);
  do {
    const std::span<float> now = data.first(std::min(block, data.size()));
    data = data.subspan(now.size());
    const std::size_t part =
        (now.size() + static_cast<std::size_t>(size) - 1) / static_cast<std::size_t>(size);
    const auto part_of = [&](int rank) {
      const std::size_t begin = std::min(now.size(), part * static_cast<std::size_t>(rank));
      return now.subspan(begin, std::min(part, now.size() - begin));
    };
    const auto from_inbox = [&](int peer, Channel channel) {
      return reinterpret_cast<const float*>(routes.inbox(peer, channel));
    };
    const std::uint32_t sequence = routes.next_sequence(Channel::scatter);

    // Starting behind oneself spreads the load: not all ranks write to rank 0 first.
    for (int i = 1; i < size; ++i) {
      const int peer = (me + i) % size;
      routes.put(peer, Channel::scatter, std::as_bytes(part_of(peer)), deadline);
      routes.signal(peer, Channel::scatter, sequence, deadline);
    }
    const std::span<float> mine = part_of(me);
    for (int i = 1; i < size; ++i) {
      routes.wait((me + i) % size, Channel::scatter, sequence, deadline);
    }
    for (std::size_t k = 0; k < mine.size(); ++k) {
      float sum = me == 0 ? mine[k] : from_inbox(0, Channel::scatter)[k];
      for (int rank = 1; rank < size; ++rank) {
        sum += rank == me ? mine[k] : from_inbox(rank, Channel::scatter)[k];
      }
      mine[k] = sum;
    }
    for (int i = 1; i < size; ++i) {
      const int peer = (me + i) % size;
      routes.put(peer, Channel::gather, std::as_bytes(mine), deadline);
      routes.signal(peer, Channel::gather, sequence, deadline);
    }
    for (int i = 1; i < size; ++i) {
      const int peer = (me + i) % size;
      routes.wait(peer, Channel::gather, sequence, deadline);
      const std::span<float> theirs = part_of(peer);
      std::copy_n(from_inbox(peer, Channel::gather), theirs.size(), theirs.begin());
    }
  } while (!data.empty());
}

}  // namespace ranklink
