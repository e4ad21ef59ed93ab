// Calls in which the kernel copies from one rank's memory straight into another's: one copy, where
// messages take two. Ranks tell each other where their data is; who has told must not return before
// that is read.

#include "collective/pieces.h"

namespace ranklink {
namespace {

void pull(Routes& routes, int peer, std::byte* to, std::size_t bytes) {
  routes.pull(peer, routes.wait(peer, Routes::kTold), to, bytes);
}

void await_all_delivered(Routes& routes) {
  for_peers(routes, [&](int peer) { routes.await_delivered(peer); });
}

void all_gather(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  for_peers(routes, [&](int peer) { routes.tell(peer, input_of(call), block); });
  copy_bytes(output_of(call) + block * static_cast<std::size_t>(routes.rank()), input_of(call),
             block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
  });
  await_all_delivered(routes);
}

void broadcast(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  if (routes.rank() != call.root) {
    pull(routes, call.root, output_of(call), call.count * size_of(call.type));
    return;
  }
  for_peers(routes,
            [&](int peer) { routes.tell(peer, input_of(call), call.count * size_of(call.type)); });
  await_all_delivered(routes);
}

void gather(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  if (routes.rank() != call.root) {
    routes.tell(call.root, input_of(call), block);
    routes.await_delivered(call.root);
    return;
  }
  copy_bytes(output_of(call) + block * static_cast<std::size_t>(call.root), input_of(call), block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
  });
}

void scatter(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const std::size_t block = call.count * size_of(call.type);
  if (routes.rank() != call.root) {
    pull(routes, call.root, output_of(call), block);
    return;
  }
  for_peers(routes, [&](int peer) {
    routes.tell(peer, input_of(call) + block * static_cast<std::size_t>(peer), block);
  });
  copy_bytes(output_of(call), input_of(call) + block * static_cast<std::size_t>(call.root), block);
  await_all_delivered(routes);
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
  for_peers(routes, [&](int peer) {
    routes.tell(peer, input + block * static_cast<std::size_t>(peer), block);
  });
  const std::size_t own = block * static_cast<std::size_t>(routes.rank());
  copy_bytes(output_of(call) + own, input + own, block);
  for_peers(routes, [&](int peer) {
    pull(routes, peer, output_of(call) + block * static_cast<std::size_t>(peer), block);
  });
  await_all_delivered(routes);
}

}  // namespace

const Algorithm kAllGatherPull = {Collective::all_gather, "pull", Needs::pull, all_gather};
const Algorithm kBroadcastPull = {Collective::broadcast, "pull", Needs::pull, broadcast};
const Algorithm kGatherPull = {Collective::gather, "pull", Needs::pull, gather};
const Algorithm kScatterPull = {Collective::scatter, "pull", Needs::pull, scatter};
const Algorithm kAllToAllPull = {Collective::all_to_all, "pull", Needs::pull, all_to_all};

}  // namespace ranklink
