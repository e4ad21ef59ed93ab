#pragma once

#include <functional>
#include <map>
#include <string>

#include "group/world.h"

namespace ranklink {

/// Links by mechanism, then rank in the job.
using Links = std::map<std::string, std::map<int, Link>>;

/// Does again, with other memory, what the job agreed on: links this rank with each rank that
/// `paired` says, by the mechanism that was decided for them, each checked as in bring-up. `paired`
/// is the same on all of the circle, who call it together; `memory` is what others get, or null.
/// Only mechanisms that map, unless `streams`. Throws Error(mechanism_unavailable) if one that
/// worked before now fails.
Links connect_as_decided(World& world, Circle& circle, const Memory* memory,
                         const std::function<bool(int, int)>& paired, bool streams,
                         Deadline deadline);

}  // namespace ranklink
