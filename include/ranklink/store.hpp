#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// A key-value store that the program supplies, as torch.distributed.Store is one. Used by the
/// thread that calls Group::join and by no other.
class RANKLINK_PUBLIC Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, std::span<const std::byte> value) = 0;
  /// The value, once the key exists. Throws anything when `timeout` passes first.
  virtual std::vector<std::byte> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace ranklink
