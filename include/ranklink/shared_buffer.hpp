#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// One piece of memory a rank, which the ranks have mapped into each other. Made by
/// Group::make_shared_buffer. It may outlive its group; a peer's memory stays readable after that
/// peer has gone.
///
/// Ordering between ranks is the program's business: after a barrier, what was written before it
/// can be read.
class RANKLINK_PUBLIC SharedBuffer {
 public:
  SharedBuffer(SharedBuffer&&) noexcept;
  SharedBuffer& operator=(SharedBuffer&&) noexcept;
  ~SharedBuffer();

  /// This rank's own memory.
  std::span<std::byte> local() const;
  /// The memory of `rank` as mapped here; empty when the route to it isn't `mapped`.
  /// Throws Error(bad_argument) for a rank that isn't in the group.
  std::span<std::byte> peer(int rank) const;

  class Impl;
  /// For ranklink's own use.
  const Impl& impl() const { return *impl_; }
  explicit SharedBuffer(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranklink
