#pragma once

#include "group/group_impl.h"

namespace ranklink {

/// Writes into the group's report what stands in its members: ranks, routes, verdicts, settings.
void fill_report(Group::Impl& group);

/// Says aloud, once, which routes share no memory, and why.
void warn_of_slow_routes(const Report& report);

}  // namespace ranklink
