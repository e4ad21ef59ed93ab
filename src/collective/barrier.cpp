#include "collective/collectives.h"

namespace ranklink {

// Dissemination (Hensgen, Finkel, Manber 1988): after round k a rank has heard, directly or not, of
// 2^(k+1) - 1 ranks before it. Distances differ from round to round, so each peer has one signal.
void barrier(Routes& routes, Deadline deadline) {
  const std::uint32_t sequence = routes.next_sequence(Channel::barrier);
  for (int distance = 1; distance < routes.size(); distance *= 2) {
    const int to = (routes.rank() + distance) % routes.size();
    const int from = (routes.rank() - distance + routes.size()) % routes.size();
    routes.signal(to, Channel::barrier, sequence, deadline);
    routes.wait(from, Channel::barrier, sequence, deadline);
  }
}

}  // namespace ranklink
