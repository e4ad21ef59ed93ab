#include "route/segment.h"

#include <algorithm>

namespace ranklink {
namespace {

constexpr std::size_t kPage = 4096;
// A bank and its counterpart at a peer stay in a core's second-level cache.
constexpr std::size_t kLargestBank = 256 << 10;
constexpr std::size_t kSmallestBank = 16 << 10;
// What all outboxes of a large group take, in banks' bytes: a rank may read from all of them.
constexpr std::size_t kBankBudget = 4 << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

SegmentLayout::SegmentLayout(int size) {
  const auto n = static_cast<std::size_t>(size);
  jobs_ = n * kLine;
  inboxes_ = jobs_ + n * kLine;
  static_assert(sizeof(CopyJob) <= kLine);
  outbox_ = round_up(inboxes_ + n * kSlots * kSlotBytes, kPage);
  bank_bytes_ = round_up(std::clamp(kBankBudget / n, kSmallestBank, kLargestBank), kPage);
}

}  // namespace ranklink
