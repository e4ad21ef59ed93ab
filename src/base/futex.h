#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"

namespace ranklink {

/// A futex word that processes share. std::atomic::wait would use the private futex and never see
/// a wake from another process.
using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

/// Sleeps while the word holds `expected`, for at most `slice`, and not past the deadline. May
/// return early: the caller looks again.
void futex_wait(const FutexWord& word, std::uint32_t expected, Deadline deadline,
                std::chrono::nanoseconds slice);
void futex_wake_all(FutexWord& word);

}  // namespace ranklink
