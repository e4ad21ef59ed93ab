#include "collective/pieces.h"

namespace ranklink {
namespace {

void broadcast(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const Pieces pieces(call.count, piece_elements(routes, call, 1));
  const bool streaming = call.count * element >= kStreamingBytes;
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t begin = pieces.begin(i) * element;
    const std::size_t bytes = pieces.size(i) * element;
    if (routes.rank() == call.root) {
      put_to_all(routes, as_message(work, input_of(call) + begin, bytes));
    } else {
      copy_bytes(output_of(call) + begin, routes.wait(call.root, bytes).data(), bytes, streaming);
      routes.release(call.root);
    }
  }
}

void broadcast_direct(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const auto root = static_cast<std::size_t>(call.root);
  meet(routes);
  copy_bytes(work.shared[static_cast<std::size_t>(routes.rank())], work.shared[root],
             call.count * size_of(call.type));
  meet(routes);
}

// The others put their data where the root reduces it: on shared memory nothing takes fewer copies.
void reduce_at_root(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const Pieces pieces(call.count, piece_elements(routes, call, 1));
  const bool streaming = call.count * element >= kStreamingBytes && call.input != call.output;
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t begin = pieces.begin(i) * element;
    const std::byte* mine = input_of(call) + begin;
    if (routes.rank() == call.root) {
      reduce_messages(work, call, mine, output_of(call) + begin, nullptr, pieces.size(i),
                      streaming);
    } else {
      routes.put(call.root, as_message(work, mine, pieces.size(i) * element));
    }
  }
}

void gather(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const std::size_t block = call.count * element;
  const Pieces pieces(call.count, piece_elements(routes, call, 1));
  const bool streaming = block * static_cast<std::size_t>(routes.size()) >= kStreamingBytes;
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t begin = pieces.begin(i) * element;
    const std::size_t bytes = pieces.size(i) * element;
    if (routes.rank() != call.root) {
      routes.put(call.root, as_message(work, input_of(call) + begin, bytes));
      continue;
    }
    // The root's own, while the others' are on their way.
    copy_bytes(output_of(call) + block * static_cast<std::size_t>(call.root) + begin,
               input_of(call) + begin, bytes, streaming);
    for_peers(routes, [&](int peer) {
      copy_bytes(output_of(call) + block * static_cast<std::size_t>(peer) + begin,
                 routes.wait(peer, bytes).data(), bytes, streaming);
      routes.release(peer);
    });
  }
}

void scatter(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const std::size_t block = call.count * element;
  const Pieces pieces(call.count,
                      piece_elements(routes, call, static_cast<std::size_t>(routes.size() - 1)));
  const bool streaming = block >= kStreamingBytes;
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t begin = pieces.begin(i) * element;
    const std::size_t bytes = pieces.size(i) * element;
    if (routes.rank() != call.root) {
      copy_bytes(output_of(call) + begin, routes.wait(call.root, bytes).data(), bytes, streaming);
      routes.release(call.root);
      continue;
    }
    for_peers(routes, [&](int peer) {
      const std::byte* theirs = input_of(call) + block * static_cast<std::size_t>(peer) + begin;
      routes.put(peer, as_message(work, theirs, bytes));
    });
    copy_bytes(output_of(call) + begin,
               input_of(call) + block * static_cast<std::size_t>(call.root) + begin, bytes,
               streaming);
  }
}

}  // namespace

const Algorithm kBroadcastFlat = {Collective::broadcast, "flat", Needs::messages, broadcast};
const Algorithm kBroadcastDirect = {Collective::broadcast, "direct", Needs::shared_buffer,
                                    broadcast_direct};
const Algorithm kReduceFlat = {Collective::reduce, "flat", Needs::messages, reduce_at_root};
const Algorithm kGatherFlat = {Collective::gather, "flat", Needs::messages, gather};
const Algorithm kScatterFlat = {Collective::scatter, "flat", Needs::messages, scatter};

}  // namespace ranklink
