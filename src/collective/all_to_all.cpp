#include <array>

#include "collective/pieces.h"

namespace ranklink {
namespace {

// What goes to a peer and comes from it, in bytes.
struct Pair {
  const std::byte* out = nullptr;
  std::size_t out_bytes = 0;
  std::byte* in = nullptr;
  std::size_t in_bytes = 0;
};

// All pairs move at the same pace, a piece each in a round; a rank puts the next round's pieces
// before it waits for this round's. A rank that is behind all others finds that they have read what
// it put two rounds ago, so it never waits for space, and what it waits for has been put: nobody
// stays behind. In place is right too: what is overwritten has been put.
// `marked`: pairs differ in size, so messages say what they are a part of.
template <typename PairOf>
void exchange_all(Workspace& work, bool marked, const PairOf& pair_of) {
  Routes& routes = work.routes;
  const auto peers = static_cast<std::size_t>(routes.size() - 1);
  const std::size_t piece = piece_bytes(routes, peers);
  std::size_t rounds = 1;
  for_peers(routes, [&](int peer) {
    const Pair pair = pair_of(peer);
    rounds = std::max(
        {rounds, Pieces(pair.out_bytes, piece).number(), Pieces(pair.in_bytes, piece).number()});
  });
  const auto put = [&](std::size_t round) {
    for_peers(routes, [&](int peer) {
      const Pair pair = pair_of(peer);
      const Pieces pieces(pair.out_bytes, piece);
      if (round >= pieces.number()) return;
      if (marked) routes.mark(pair.out_bytes);
      routes.put(peer, as_message(work, pair.out + pieces.begin(round), pieces.size(round)));
    });
  };
  put(0);
  for (std::size_t round = 0; round < rounds; ++round) {
    put(round + 1);
    for_peers(routes, [&](int peer) {
      const Pair pair = pair_of(peer);
      const Pieces pieces(pair.in_bytes, piece);
      if (round >= pieces.number()) return;
      if (marked) routes.mark(pair.in_bytes);
      const ByteView theirs = routes.wait(peer, pieces.size(round));
      copy_bytes(pair.in + pieces.begin(round), theirs.data(), theirs.size(),
                 pair.in_bytes >= kStreamingBytes);
      routes.release(peer);
    });
  }
}

void all_to_all(Workspace& work, const Call& call) {
  const std::size_t block = call.count * size_of(call.type);
  const auto pair_of = [&](int peer) {
    const std::size_t place = block * static_cast<std::size_t>(peer);
    return Pair{input_of(call) + place, block, output_of(call) + place, block};
  };
  const Pair own = pair_of(work.routes.rank());
  copy_bytes(own.in, own.out, block);
  exchange_all(work, false, pair_of);
}

void all_to_all_v(Workspace& work, const Call& call) {
  const std::size_t element = size_of(call.type);
  // Nothing may have no address.
  const auto pair_of = [&](int p) {
    const auto peer = static_cast<std::size_t>(p);
    Pair pair{nullptr, call.send_counts[peer] * element, nullptr, call.recv_counts[peer] * element};
    if (pair.out_bytes > 0) pair.out = input_of(call) + call.send_offsets[peer] * element;
    if (pair.in_bytes > 0) pair.in = output_of(call) + call.recv_offsets[peer] * element;
    return pair;
  };
  const Pair own = pair_of(work.routes.rank());
  copy_bytes(own.in, own.out, std::min(own.out_bytes, own.in_bytes));
  exchange_all(work, true, pair_of);
}

// Of each pair of ranks, the lower one swaps the first half of what they have for each other, the
// higher one the second.
void direct(Workspace& work, const Call& call) {
  constexpr std::size_t kPieceBytes = 4096;
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  const auto me = static_cast<std::size_t>(routes.rank());
  meet(routes);
  for_peers(routes, [&](int p) {
    const auto peer = static_cast<std::size_t>(p);
    const std::size_t half = std::min(block, (block / 2 + 63) / 64 * 64);
    const std::size_t end = me < peer ? half : block;
    std::array<std::byte, kPieceBytes> held;
    for (std::size_t at = me < peer ? 0 : half; at < end; at += kPieceBytes) {
      const std::size_t bytes = std::min(kPieceBytes, end - at);
      std::byte* mine = work.shared[me] + peer * block + at;
      std::byte* theirs = work.shared[peer] + me * block + at;
      std::memcpy(held.data(), mine, bytes);
      std::memcpy(mine, theirs, bytes);
      std::memcpy(theirs, held.data(), bytes);
    }
  });
  meet(routes);
}

}  // namespace

const Algorithm kAllToAllFlat = {Collective::all_to_all, "flat", Needs::messages, all_to_all};
const Algorithm kAllToAllDirect = {Collective::all_to_all, "direct", Needs::shared_buffer, direct};
const Algorithm kAllToAllV = {Collective::all_to_all_v, "flat", Needs::messages, all_to_all_v};

}  // namespace ranklink
