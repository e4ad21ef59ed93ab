#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/secret.h"

namespace ranklink {

/// What ranks write into each other's memory to prove that it is the memory they mean. Each 64-bit
/// word depends on the job, the writer, the reader, the kind of access, the trial and its own
/// place, so a handle that resolves to any other memory shows.
struct PatternKey {
  JobId job{};
  std::int32_t from = 0;     ///< who writes it
  std::int32_t to = 0;       ///< for whom
  std::uint32_t access = 0;  ///< kLoadAccess, kStoreAccess, kStreamAccess
  std::uint32_t trial = 0;   ///< counts trials, so that no old pattern passes for a new one
};
inline constexpr std::uint32_t kLoadAccess = 1;    ///< the owner writes, the peer loads
inline constexpr std::uint32_t kStoreAccess = 2;   ///< the peer stores, the owner reads
inline constexpr std::uint32_t kStreamAccess = 3;  ///< sent over a stream
inline constexpr std::uint32_t kPullAccess = 4;    ///< in private memory, which the kernel copies

/// Fills `bytes` (a multiple of 8), the first of which lies at `offset` of its segment.
void write_pattern(const PatternKey& key, std::uint64_t offset, std::span<std::byte> bytes);
/// Nothing if all is right, else what is wrong, as in `word 3 at offset 4096 reads 0x0, not
/// 0x1f..`.
std::optional<std::string> check_pattern(const PatternKey& key, std::uint64_t offset,
                                         ByteView bytes);
/// The value of the signal that follows the pattern; never 0.
std::uint32_t pattern_signal(const PatternKey& key);

}  // namespace ranklink
