#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace ranklink {

void futex_wait(const FutexWord& word, std::uint32_t expected, Deadline deadline,
                std::chrono::nanoseconds slice) {
  const timespec wait = deadline.slice(slice);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &wait, nullptr, 0);
}

void futex_wake_all(FutexWord& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ranklink
