#include "collective/pieces.h"

namespace ranklink {
namespace {

// Everybody gives everything to all, and reduces it all: one exchange, for small counts.
void run(Workspace& work, const Call& call) {
  Routes& routes = work.routes;
  const Pieces pieces(call.count, piece_elements(routes, call, 1));
  for (std::size_t i = 0; i < pieces.number(); ++i) {
    const std::size_t begin = pieces.begin(i) * size_of(call.type);
    const std::byte* mine = input_of(call) + begin;
    put_to_all(routes, as_message(work, mine, pieces.size(i) * size_of(call.type)));
    reduce_messages(work, call, mine, output_of(call) + begin, nullptr, pieces.size(i), false);
  }
}

}  // namespace

const Algorithm kAllReduceFlat = {Collective::all_reduce, "flat", Needs::messages, run};

}  // namespace ranklink
