#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranklink/store.hpp"
#include "ranklink/unique_id.hpp"
#include "ranklink/visibility.hpp"

namespace ranklink {

/// How a process joins its group. What is not set here comes from the environment: first of all
/// from `ranklink run`, else from RANK, WORLD_SIZE and the RANKLINK_ settings.
///
/// At most one of `unique_id` and `store` may be set; with either, `rank` and `size` should be.
struct RANKLINK_PUBLIC Options {
  std::optional<int> rank;  ///< 0 .. size-1
  std::optional<int> size;  ///< number of ranks

  /// Made by one process with make_unique_id() and carried to all by the program.
  std::optional<UniqueId> unique_id;
  /// A key-value store that all ranks reach; `store_prefix` keeps groups apart.
  std::shared_ptr<Store> store;
  std::string store_prefix = "ranklink";

  /// Settings by name, as in {"RANKLINK_MECHANISM", "fd+socket"}; they precede the environment's.
  std::vector<std::pair<std::string, std::string>> settings;
};

}  // namespace ranklink
