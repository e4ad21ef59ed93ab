#pragma once

#include <cstdint>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"

namespace ranklink {

/// What a descriptor that the launcher waits for is to it.
enum class Source : std::uint32_t { signals, process, output, errors, message, outlet };

struct Ready {
  Source source;
  int rank;
};

/// The descriptors that the launcher's one loop waits for.
class Poller {
 public:
  Poller();

  /// False when it can't be waited for, as regular files can't.
  bool add(int fd, std::uint32_t events, Source source, int rank = 0);
  void remove(int fd);
  /// What is ready, at the latest when the deadline passes. Good until the next call.
  const std::vector<Ready>& wait(Deadline deadline);

 private:
  Fd epoll_;
  std::vector<Ready> ready_;
};

}  // namespace ranklink
