#pragma once

#include <cstdint>
#include <string>

namespace ranklink {

/// Tells whether the kernel's out-of-memory killer struck in this process's memory cgroup since the
/// watch began: a SIGKILL itself doesn't say who sent it.
class OomWatch {
 public:
  explicit OomWatch(const std::string& root = "/");

  /// A sentence, once for each process that it killed, or empty.
  std::string news();

 private:
  std::uint64_t count() const;

  std::string counters_;  ///< the file to read, or empty
  std::string where_;     ///< for people
  std::uint64_t seen_ = 0;
};

}  // namespace ranklink
