// Calls in which the kernel copies from one rank's memory straight into another's: one copy, where
// messages take two. Ranks tell each other where their data is; who has been read from must not
// return before that is over.

#include "collective/pieces.h"

namespace ranklink {
namespace {

void tell(Routes& routes, int peer, const std::byte* data) {
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
  routes.put(peer, std::as_bytes(std::span(&address, 1)));
}

// Reads what `peer` tells of.
void pull(Routes& routes, int peer, std::byte* to, std::size_t bytes) {
  std::uint64_t address = 0;
  std::memcpy(&address, routes.wait(peer, sizeof address).data(), sizeof address);
  routes.release(peer);
  routes.pull(peer, address, to, bytes);
}

void await_word(Routes& routes, int peer) {
  routes.wait(peer, 0);
  routes.release(peer);
}

void all_gather(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  for_peers(routes, [&](int peer) { tell(routes, peer, input_of(call)); });
  copy_bytes(output_of(call) + block * static_cast<std::size_t>(routes.rank()), input_of(call),
             block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
  });
  meet(routes);
}

void broadcast(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  if (routes.rank() == call.root) {
    for_peers(routes, [&](int peer) { tell(routes, peer, input_of(call)); });
    for_peers(routes, [&](int peer) { await_word(routes, peer); });
  } else {
    pull(routes, call.root, output_of(call), call.count * size_of(call.type));
    routes.put(call.root, {});
  }
}

void gather(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  if (routes.rank() != call.root) {
    tell(routes, call.root, input_of(call));
    await_word(routes, call.root);
    return;
  }
  copy_bytes(output_of(call) + block * static_cast<std::size_t>(call.root), input_of(call), block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
    routes.put(peer, {});
  });
}

void scatter(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  if (routes.rank() != call.root) {
    pull(routes, call.root, output_of(call), block);
    routes.put(call.root, {});
    return;
  }
  for_peers(routes, [&](int peer) {
    tell(routes, peer, input_of(call) + block * static_cast<std::size_t>(peer));
  });
  copy_bytes(output_of(call), input_of(call) + block * static_cast<std::size_t>(call.root), block);
  for_peers(routes, [&](int peer) { await_word(routes, peer); });
}

// In place, what peers are to read stands aside.
void all_to_all(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  const std::byte* input = input_of(call);
  if (call.input == call.output) {
    work.aside.assign(input, input + block * static_cast<std::size_t>(routes.size()));
    input = work.aside.data();
  }
  for_peers(routes,
            [&](int peer) { tell(routes, peer, input + block * static_cast<std::size_t>(peer)); });
  const std::size_t own = block * static_cast<std::size_t>(routes.rank());
  copy_bytes(output_of(call) + own, input + own, block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
  });
  meet(routes);
}

}  // namespace

const Algorithm kAllGatherPull = {Collective::all_gather, "pull", Needs::pull, all_gather};
const Algorithm kBroadcastPull = {Collective::broadcast, "pull", Needs::pull, broadcast};
const Algorithm kGatherPull = {Collective::gather, "pull", Needs::pull, gather};
const Algorithm kScatterPull = {Collective::scatter, "pull", Needs::pull, scatter};
const Algorithm kAllToAllPull = {Collective::all_to_all, "pull", Needs::pull, all_to_all};

}  // namespace ranklink
