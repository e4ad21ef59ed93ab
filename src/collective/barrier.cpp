#include "collective/pieces.h"

namespace ranklink {
namespace {

void flat(Workspace& work, const Call&) { meet(work.routes); }

// Dissemination (Hensgen, Finkel, Manber 1988): after round k a rank has heard, directly or not, of
// 2^(k+1) - 1 ranks before it.
void dissemination(Workspace& work, const Call&) {
  Routes& routes = work.routes;
  for (int distance = 1; distance < routes.size(); distance *= 2) {
    const int from = (routes.rank() - distance + routes.size()) % routes.size();
    routes.put((routes.rank() + distance) % routes.size(), {});
    routes.wait(from, 0);
    routes.release(from);
  }
}

}  // namespace

const Algorithm kBarrierFlat = {Collective::barrier, "flat", Needs::messages, flat};
const Algorithm kBarrierDissemination = {Collective::barrier, "dissemination", Needs::messages,
                                         dissemination};

}  // namespace ranklink
