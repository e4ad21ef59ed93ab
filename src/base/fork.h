#pragma once

#include <atomic>
#include <memory>

namespace ranklink {

/// Tells a process from those that are forked from it later, for the price of one load: a page that
/// the kernel clears in every child.
class ForkMark {
 public:
  ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark();

  /// Whether this process was forked after the mark was made.
  bool forked() const { return page_->load(std::memory_order_relaxed) == 0; }

 private:
  std::atomic<int>* page_;
};

}  // namespace ranklink
