#pragma once

#include <functional>
#include <map>
#include <set>

#include "exchange/mechanism.h"

namespace ranklink {

/// Passes descriptors between this rank and peers that it has met, to which the rendezvous can't
/// pass them: sends what `sending` has for each, and calls `take` with what comes of each of
/// `awaited`, or with the verdict that says why nothing does.
using TakeFd = std::function<void(int peer, Fd fd, std::optional<Verdict> no)>;
void pass_by_pair_sockets(Surroundings& around, const std::map<int, SharedFd>& sending,
                          std::set<int> awaited, const TakeFd& take, Deadline deadline);

}  // namespace ranklink
