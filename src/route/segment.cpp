#include "route/segment.h"

#include <algorithm>

namespace ranklink {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
// All inboxes of one channel together, so that a large group takes no more memory than a small one.
constexpr std::size_t kInboxBudget = 256 << 10;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

SegmentLayout::SegmentLayout(int size) : size_(size) {
  const auto n = static_cast<std::size_t>(size);
  chunk_ = round_up(std::clamp<std::size_t>(kInboxBudget / n, 1 << 10, 128 << 10), kLine);
  signals_bytes_ = round_up(n * kChannels * kLine, kPage);
  bytes_ = signals_bytes_ + round_up(n * 2 * chunk_, kPage);
}

std::size_t SegmentLayout::signal(int from, Channel channel) const {
  return (static_cast<std::size_t>(from) * kChannels + static_cast<std::size_t>(channel)) * kLine;
}

std::size_t SegmentLayout::inbox(int from, Channel channel) const {
  const std::size_t row = channel == Channel::scatter ? 0 : static_cast<std::size_t>(size_);
  return signals_bytes_ + (row + static_cast<std::size_t>(from)) * chunk_;
}

}  // namespace ranklink
