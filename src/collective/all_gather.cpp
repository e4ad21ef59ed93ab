#include "collective/pieces.h"

namespace ranklink {
namespace {

// Everybody puts a piece once, for all to read, and the next piece before it waits for theirs.
void flat(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const std::size_t block = call.count * element;
  const Pieces pieces(call.count, piece_elements(routes, call, 1));
  const bool streaming = block * static_cast<std::size_t>(routes.size()) >= kStreamingBytes;
  const auto put = [&](std::size_t i) {
    put_to_all(routes, as_message(work, input_of(call) + pieces.begin(i) * element,
                                  pieces.size(i) * element));
  };
  put(0);
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    if (i + 1 < pieces.number()) put(i + 1);
    const std::size_t begin = pieces.begin(i) * element;
    std::byte* const output = output_of(call) + begin;
    copy_bytes(output + block * static_cast<std::size_t>(routes.rank()), input_of(call) + begin,
               pieces.size(i) * element, streaming);
    for_peers(routes, [&](int peer) {
      const ByteView theirs = routes.wait(peer, pieces.size(i) * element);
      copy_bytes(output + block * static_cast<std::size_t>(peer), theirs.data(), theirs.size(),
                 streaming);
      routes.release(peer);
    });
  }
}

void direct(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  const auto me = static_cast<std::size_t>(routes.rank());
  meet(routes);
  for_peers(routes, [&](int p) {
    const auto peer = static_cast<std::size_t>(p);
    copy_bytes(work.shared[me] + peer * block, work.shared[peer] + peer * block, block);
  });
  meet(routes);
}

}  // namespace

const Algorithm kAllGatherFlat = {Collective::all_gather, "flat", Needs::messages, flat};
const Algorithm kAllGatherDirect = {Collective::all_gather, "direct", Needs::shared_buffer, direct};

}  // namespace ranklink
