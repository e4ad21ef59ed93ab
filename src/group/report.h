#pragma once

#include "group/group_impl.h"

namespace ranklink {

/// What is known of the group: ranks, routes, verdicts, settings, by the ranks' numbers in the job.
/// With hundreds of ranks that is much, so it is made when somebody asks.
Report make_report(const Group::Impl& group);

/// Says aloud, once in a group, that routes share no memory, and why.
void warn_of_slow_routes(const Group::Impl& group);

}  // namespace ranklink
