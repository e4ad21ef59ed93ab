#pragma once

#include <vector>

#include "group/group_impl.h"

namespace ranklink {

/// What a route was measured to do, one message at a time.
struct RouteFigure {
  int from = 0;
  int to = 0;
  double bandwidth = 0;  ///< bytes a second of puts from `from`, of `chunk` bytes each
  double latency = 0;    ///< seconds from a signal to its arrival, half a round trip
};

/// Measures the routes between this rank and others, one pair of the group at a time; in groups of
/// more than 16 only those between neighbours in rank order. All ranks call it together. Returns
/// the routes that go out from this rank.
std::vector<RouteFigure> measure_routes(Group::Impl& group);

}  // namespace ranklink
