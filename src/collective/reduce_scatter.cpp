#include "collective/pieces.h"

namespace ranklink {
namespace {

// Everybody puts to each what that one reduces, a piece ahead.
void flat(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const std::size_t block = call.count * element;
  const auto peers = static_cast<std::size_t>(routes.size() - 1);
  const Pieces pieces(call.count, piece_elements(routes, call, peers));
  const bool streaming = block >= kStreamingBytes && call.input != call.output;
  const auto put = [&](std::size_t i) {
    for_peers(routes, [&](int peer) {
      const std::byte* theirs = input_of(call) + block * static_cast<std::size_t>(peer);
      routes.put(peer,
                 as_message(work, theirs + pieces.begin(i) * element, pieces.size(i) * element));
    });
  };
  put(0);
  const std::byte* mine = input_of(call) + block * static_cast<std::size_t>(routes.rank());
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    if (i + 1 < pieces.number()) put(i + 1);
    const std::size_t begin = pieces.begin(i) * element;
    reduce_messages(work, call, mine + begin, output_of(call) + begin, nullptr, pieces.size(i),
                    streaming && mine != output_of(call));
  }
}

void direct(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const auto me = static_cast<std::size_t>(routes.rank());
  const std::size_t begin = call.count * size_of(call.type) * me;
  meet(routes);
  for (std::size_t rank = 0; rank < work.shared.size(); ++rank) {
    work.inputs[rank] = work.shared[rank] + begin;
  }
  reduce({call.type, call.op}, work.shared[me] + begin, nullptr, work.inputs, call.count);
  meet(routes);
}

}  // namespace

const Algorithm kReduceScatterFlat = {Collective::reduce_scatter, "flat", Needs::messages, flat};
const Algorithm kReduceScatterDirect = {Collective::reduce_scatter, "direct", Needs::shared_buffer,
                                        direct};

}  // namespace ranklink
