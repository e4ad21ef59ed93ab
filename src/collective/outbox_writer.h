#pragma once

#include <cstddef>
#include <cstring>

namespace ranklink {

/// Writes a rank's messages into its outbox: through the caches or past them.
///
/// What makes the difference is lines that a peer has read last. Where the cores are near to each
/// other, overwriting them costs nearly nothing, and the peer then reads them from this core's
/// cache. Where they are far apart it costs ten times as much as to store past the caches. A
/// hypervisor moves its cores within seconds, so that the time of ordinary stores is taken again
/// and again as the bytes go by; peers needn't know. bench/README.md has the figures.
class OutboxWriter {
 public:
  /// Picoseconds per byte that ordinary stores may take: in between near cores (20 to 130) and far
  /// ones (200 to 600).
  static constexpr long kLimit = 150;
  static constexpr long kNothing = -1;
  static constexpr long kAnything = 1'000'000'000;
  /// Shorter messages are written through the caches: the processor's store buffer hides the rest.
  static constexpr std::size_t kLeast = 2 << 10;

  explicit OutboxWriter(long limit = kLimit) : limit_(limit) {}

  /// memcpy into the outbox.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes < kLeast) {
      std::memcpy(to, from, bytes);
    } else {
      copy_long(to, from, bytes);
    }
  }

  /// Whether so many bytes are best written past the caches now.
  bool past_caches(std::size_t bytes) const { return bytes >= kLeast && past_caches_; }

 private:
  void copy_long(std::byte* to, const std::byte* from, std::size_t bytes);

  long limit_;
  bool past_caches_ = false;
  std::size_t until_trial_ = 0;  // bytes
};

}  // namespace ranklink
