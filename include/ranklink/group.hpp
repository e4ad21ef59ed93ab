#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ranklink/error.hpp"
#include "ranklink/options.hpp"
#include "ranklink/report.hpp"
#include "ranklink/shared_buffer.hpp"
#include "ranklink/visibility.hpp"

namespace ranklink {

/// A group of ranks that have found each other, know how they reach each other's memory, and agree
/// on it.
///
/// All ranks call the same operations in the same order. A group is used by one thread at a time.
/// Every call that waits has a deadline (RANKLINK_OP_TIMEOUT) and throws Error when it passes or
/// when any rank fails; after an Error the group is good for nothing but its destructor, report()
/// and rank numbers.
class RANKLINK_PUBLIC Group {
 public:
  /// Brings the group up, or throws Error on every rank. Bounded by RANKLINK_JOIN_TIMEOUT.
  static Group join(const Options& options = {});

  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  /// Leaves the group. Takes part in no group operation and doesn't wait for peers.
  ~Group();

  int rank() const;
  int size() const;
  const Report& report() const;

  /// Replaces `data` by the elementwise sum over all ranks. All ranks pass the same number of
  /// elements and get bitwise the same result.
  void all_reduce(std::span<float> data);
  /// Returns when all ranks have called it.
  void barrier();
  /// Tells all ranks that this one can't go on: their next or present call throws an Error with
  /// this rank, `cause` and `remedy`.
  void fail(const std::string& cause, const std::string& remedy = {});

  /// Memory of `size` bytes on every rank that the others can read and write, zeroed. All ranks
  /// call it together.
  SharedBuffer make_shared_buffer(std::size_t size);

  class Impl;
  /// For ranklink's own tools.
  Impl& impl() { return *impl_; }

 private:
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranklink
