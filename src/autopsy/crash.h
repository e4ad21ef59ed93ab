#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace ranklink {

/// What the kernel tells a signal handler about a crash.
struct CrashFacts {
  std::int32_t signal = 0;
  std::int32_t code = 0;      ///< si_code: how the signal came about
  std::int32_t sender = 0;    ///< the other process that sent it, as the crashed one sees it, or 0
  std::uint64_t address = 0;  ///< si_addr: what the instruction touched
  std::uint64_t pc = 0;       ///< where the instruction was
  std::uint64_t stack = 0;    ///< the stack pointer
  std::array<char, 16> thread{};  ///< its name; empty for the main thread
};

/// What is known of a crash from the inside of the process that crashed.
struct Crash {
  CrashFacts facts;
  std::string backtrace;  ///< `open_device+0x1c (libvendor.so), main+0x40 (train)`, caller last

  /// As in `it called a function that it doesn't have (address 0)`; empty where the signal says
  /// all.
  std::string text() const;
  /// The function at address 0 that was called, or a jump to where no code is.
  bool is_bad_call() const;
};

/// Memory in which a process that crashes leaves word for others. All zeros: it hasn't crashed.
/// Its writer is a signal handler; whoever reads it trusts nothing in it.
struct CrashSlot {
  enum Stage : std::uint32_t { none, facts_known, complete };

  std::atomic<std::uint32_t> stage;
  CrashFacts facts;
  std::array<char, 984> backtrace;

  /// Nothing before the facts are there.
  std::optional<Crash> read() const;
  bool is_complete() const { return stage.load(std::memory_order_acquire) == complete; }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace ranklink
