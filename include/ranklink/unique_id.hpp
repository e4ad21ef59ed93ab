#pragma once

#include <array>
#include <cstddef>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// Where the ranks of one group meet, and the secret they know each other by: 256 bytes that the
/// program carries to every rank (over MPI, a file, a socket). Treat it as a secret.
struct UniqueId {
  std::array<std::byte, 256> bytes{};
};

/// Opens a meeting point in this process and names it. The process must live until all ranks have
/// left the group; any process may make it, most often rank 0. Throws Error. Thread-safe.
RANKLINK_PUBLIC UniqueId make_unique_id();

}  // namespace ranklink
