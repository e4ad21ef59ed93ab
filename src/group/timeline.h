#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "ranklink/report.hpp"

namespace ranklink {

/// The steps that a rank has gone through, with the wall clock's time of each one's begin, so that
/// those of several hosts can be laid side by side, and the steady clock's of its length.
class Timeline {
 public:
  /// Ends the step before it.
  void begin(const std::string& step);
  void end();
  double total_ms() const;

  Bytes encode() const;
  /// The steps of `rank`, in milliseconds of the wall clock since 1970. Throws Error.
  static std::vector<StepReport> decode(Reader& from, int rank);

 private:
  struct Entry {
    std::string step;
    double start_ms = 0;  // of the wall clock since 1970
    double length_ms = -1;
    std::int64_t steady_start_ns = 0;
  };
  std::vector<Entry> entries_;
};

/// Shifts all steps so that the earliest begins at 0.
void rebase(std::vector<StepReport>& steps);

}  // namespace ranklink
