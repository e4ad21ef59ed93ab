#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"

namespace ranklink {

/// Owns a mapping of a file that processes share.
class Mapping {
 public:
  Mapping() = default;
  /// Maps the first `size` bytes of `fd`, readable and writable. Throws Error.
  Mapping(int fd, std::size_t size);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A memfd of `size` bytes, reserved (so that a later touch can't fail) and sealed against changes
/// of size. `name` shows in /proc/PID/maps. Throws Error: memory_short when the reservation fails.
Fd make_shared_memory(const std::string& name, std::size_t size);

/// What make_shared_memory promises, checked on a descriptor that came from elsewhere: at least
/// `size` bytes, and sealed. Throws Error(protocol_violation).
void check_shared_memory(int fd, std::size_t size);

}  // namespace ranklink
