#include "group/connect.h"

#include <fmt/format.h>

#include <tuple>

#include "exchange/trial.h"

namespace ranklink {
namespace {

// A row tells of both directions; what isn't used may fail.
void need_what_is_used(const World& world, const VerdictRow& row, const std::string& mechanism) {
  const int me = world.client->rank();
  for (const VerdictRow::Entry& entry : row.entries) {
    for (const auto& [verdict, from, to] : {std::tuple(&entry.to_peer, me, entry.peer),
                                            std::tuple(&entry.from_peer, entry.peer, me)}) {
      if (verdict->yes || world.decision.mechanism(from, to) != mechanism) continue;
      throw Error({.code = ErrorCode::mechanism_unavailable,
                   .rank = verdict->rank,
                   .peer = entry.peer,
                   .cause = fmt::format("{} worked at bring-up and fails now: {}", mechanism,
                                        verdict->cause),
                   .remedy = verdict->remedy});
    }
  }
}

}  // namespace

Links connect_as_decided(World& world, Circle& circle, const Memory* memory,
                         const std::function<bool(int, int)>& paired, bool streams,
                         Deadline deadline) {
  Surroundings& around = *world.around;
  const int me = around.rank();
  const Offer offer = make_offer(around, circle, memory, deadline);
  Links links;
  // Only what the job agreed on is used: no rank decides alone on something else.
  for (const VerdictMatrix& matrix : world.decision.verdicts) {
    const std::string& name = matrix.mechanism();
    const Mechanism& mechanism = find_mechanism(name);
    if (!mechanism.maps && !streams) continue;
    std::vector<int> peers;
    bool any = false;
    for (const int a : circle.members) {
      for (const int b : circle.members) {
        if (a == b || !paired(a, b)) continue;
        if (world.decision.mechanism(a, b) != name && world.decision.mechanism(b, a) != name) {
          continue;
        }
        any = true;
        if (a == me) peers.push_back(b);
      }
    }
    if (!any) continue;
    const VerdictRow row =
        try_mechanism(around, circle, mechanism, offer, peers, links[name], deadline);
    need_what_is_used(world, row, name);
  }
  return links;
}

}  // namespace ranklink
