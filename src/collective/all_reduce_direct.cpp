#include "collective/pieces.h"

namespace ranklink {
namespace {

// Each rank reduces one part where it stands in all ranks' buffers, and writes the result into all
// of them. What it has written for itself it copies while that is in the cache.
void run(Workspace& work, const Call& call) {
  constexpr std::size_t kPieceBytes = 32 << 10;
  Routes& routes = work.routes;
  const std::size_t element = size_of(call.type);
  const auto ranks = static_cast<std::size_t>(routes.size());
  const auto me = static_cast<std::size_t>(routes.rank());
  const std::size_t line = 64 / element;
  const std::size_t share = ((call.count + ranks - 1) / ranks + line - 1) / line * line;
  const std::size_t begin = std::min(call.count, share * me);
  const Pieces pieces(std::min(share, call.count - begin), kPieceBytes / element);
  meet(routes);
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t at = (begin + pieces.begin(i)) * element;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      work.inputs[rank] = work.shared[rank] + at;
    }
    std::byte* mine = work.shared[me] + at;
    std::byte* second = ranks == 2 ? work.shared[1 - me] + at : nullptr;
    reduce({call.type, call.op}, mine, second, work.inputs, pieces.size(i));
    if (second != nullptr) continue;
    for_peers(routes, [&](int peer) {
      copy_bytes(work.shared[static_cast<std::size_t>(peer)] + at, mine, pieces.size(i) * element);
    });
  }
  meet(routes);
}

}  // namespace

const Algorithm kAllReduceDirect = {Collective::all_reduce, "direct", Needs::shared_buffer, run};

}  // namespace ranklink
