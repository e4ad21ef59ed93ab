#pragma once

#include <span>

#include "base/deadline.h"
#include "route/routes.h"

namespace ranklink {

/// Elementwise sum over all ranks, in rank order, so that all ranks get bitwise the same.
void all_reduce_sum(Routes& routes, std::span<float> data, Deadline deadline);

/// Returns when all ranks have called it.
void barrier(Routes& routes, Deadline deadline);

}  // namespace ranklink
