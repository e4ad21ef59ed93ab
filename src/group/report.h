#pragma once

#include "group/group_impl.h"

namespace ranklink {

/// Writes into the group's report what stands in its members: ranks, routes, verdicts, settings.
/// With hundreds of ranks that is much, so it is done when somebody asks.
void fill_report(Group::Impl& group);

/// Says aloud, once in a group, that routes share no memory, and why.
void warn_of_slow_routes(const Group::Impl& group);

}  // namespace ranklink
