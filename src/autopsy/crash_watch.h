#pragma once

#include "autopsy/crash.h"

namespace ranklink {

/// While one lives, a crash of this process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT or SIGSYS) is
/// described in `slot` and on stderr before the signal ends the process as it would have anyway,
/// core file included. A signal for which the program has a handler of its own stays the program's.
/// Processes forked from this one write nothing.
///
/// Thread-safe. Up to kMost live at once; further ones do nothing.
class CrashWatch {
 public:
  static constexpr int kMost = 16;
  /// Begins each line that a crash writes on stderr.
  static constexpr const char* kMark = "ranklink: crash: ";

  /// Called once the slot is complete, in the signal handler.
  using Tell = void (*)(void* argument);

  CrashWatch(CrashSlot& slot, Tell tell, void* argument);
  /// When the process is crashing, waits for its end: the handler still uses the slot.
  ~CrashWatch();
  CrashWatch(const CrashWatch&) = delete;
  CrashWatch& operator=(const CrashWatch&) = delete;

 private:
  CrashSlot& slot_;
  Tell tell_;
  void* argument_;

  friend struct CrashHandler;
};

/// Memory for this thread's handlers, so that one can run where the thread's own stack is used up.
/// Does nothing where the program has given the thread such memory.
void use_alternate_stack();

}  // namespace ranklink
