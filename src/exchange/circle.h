#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"

namespace ranklink {

/// The ranks that act together, and how each hands a row to all others: those of the job by the
/// rendezvous, those of a subgroup by messages of their own.
struct Circle {
  using Submit = std::function<Bytes(const std::string& round, Bytes row, Deadline deadline)>;

  std::vector<int> members;  ///< by their ranks in the job
  Submit submit;             ///< gives the rows of all, in the members' order
  std::uint32_t number = 0;  ///< of the group: 0 for the whole job, a hash for others
  std::uint32_t trials = 0;

  /// Marks what members send each other in one trial; the same at all of them. Two groups of one
  /// pair of ranks have different ones, but for one case in 2^31.
  std::uint32_t next_tag() {
    ++trials;
    if (number == 0) return trials;
    return (number * 0x9e37'79b1u ^ trials * 0x85eb'ca6bu) | 0x8000'0000u;
  }
};

}  // namespace ranklink
