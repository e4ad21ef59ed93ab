#include "collective/outbox_writer.h"

#include <algorithm>
#include <chrono>

#include "collective/reduce.h"

namespace ranklink {
namespace {

// A trial takes 2 us at worst, of the 60 and more that these bytes take.
constexpr std::size_t kBetweenTrials = 1 << 20;
constexpr std::size_t kTrial = 4 << 10;

}  // namespace

void OutboxWriter::copy_long(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (until_trial_ <= bytes) {
    until_trial_ = kBetweenTrials;
    const std::size_t part = std::min(bytes, kTrial);
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to, from, part);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    past_caches_ = took.count() * 1000 > limit_ * static_cast<long>(part);
    to += part;
    from += part;
    bytes -= part;
  }
  until_trial_ -= std::min(until_trial_, bytes);
  if (past_caches_) {
    copy_streaming(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace ranklink
