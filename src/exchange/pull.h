#pragma once

#include "exchange/mechanism.h"

namespace ranklink {

/// Whether this rank can have the kernel copy from a peer's private memory, and to it, found out by
/// doing it: the peer's pattern must be what it reads. In the same pid namespace only, since a pid
/// says whom it reads from. That is no route: it adds to one that is mapped.
bool can_pull(Surroundings& around, const Offer& offer, int peer);

}  // namespace ranklink
