#pragma once

#include <map>
#include <vector>

#include "exchange/coordinator.h"
#include "exchange/mechanism.h"

namespace ranklink {

/// What a segment must hold at least for a trial between `size` ranks, in bytes. Trials write all
/// over it: whoever uses it afterwards clears what he relies on.
std::size_t trial_bytes(int size);

/// Tries a mechanism between this rank and `peers`, in both directions, with the kinds of access
/// that collectives use: remote load, remote store, signal; or sending, for a stream. All of the
/// circle call it together. Links that were made are put into `links`, whatever their verdict.
VerdictRow try_mechanism(Surroundings& around, Circle& circle, const Mechanism& mechanism,
                         const Offer& offer, const std::vector<int>& peers,
                         std::map<int, Link>& links, Deadline deadline);

}  // namespace ranklink
