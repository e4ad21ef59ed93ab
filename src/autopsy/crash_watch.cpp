#include "autopsy/crash_watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>

#include "base/fork.h"
#include "base/process_memory.h"

namespace ranklink {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
constexpr int kFrames = 48;
// The unwinder and the loader, which names functions, may wait for a lock that the crashed thread,
// or one that no longer runs, holds.
constexpr int kBacktraceSeconds = 2;
constexpr std::size_t kStackBytes = 128 * 1024;

// Text in memory of fixed size: formatting libraries may allocate, which a handler must not.
class Text {
 public:
  Text(char* to, std::size_t size) : to_(to), left_(size - 1) {}  // and a zero at the end
  Text& add(std::string_view text) {
    const std::size_t n = std::min(text.size(), left_);
    std::memcpy(to_, text.data(), n);
    to_ += n;
    left_ -= n;
    *to_ = '\0';
    return *this;
  }
  Text& hex(std::uint64_t number) {
    char digits[18];
    char* at = digits + sizeof digits;
    do *--at = "0123456789abcdef"[number % 16];
    while ((number /= 16) != 0);
    *--at = 'x';
    *--at = '0';
    return add({at, static_cast<std::size_t>(digits + sizeof digits - at)});
  }
  std::size_t left() const { return left_; }

 private:
  char* to_;
  std::size_t left_;
};

std::string_view file_name(const char* path) {
  const std::string_view whole = path != nullptr ? path : "?";
  return whole.substr(whole.rfind('/') + 1);
}

// Where the context's thread was; a reference, so that it can be put elsewhere for the unwinder.
#if defined(__x86_64__)
greg_t& pc_of(ucontext_t& context) { return context.uc_mcontext.gregs[REG_RIP]; }
greg_t& stack_of(ucontext_t& context) { return context.uc_mcontext.gregs[REG_RSP]; }
#elif defined(__aarch64__)
unsigned long long& pc_of(ucontext_t& context) { return context.uc_mcontext.pc; }
unsigned long long& stack_of(ucontext_t& context) { return context.uc_mcontext.sp; }
#endif

// Puts the context back to where a call to where no code is came from: the unwinder knows no way
// back from there. Leaves it where that can't be found out.
void step_back(ucontext_t& context) {
#if defined(__x86_64__)
  greg_t& stack = stack_of(context);
  std::uint64_t caller = 0;
  if (read_process_memory(::getpid(), static_cast<std::uint64_t>(stack),
                          reinterpret_cast<std::byte*>(&caller), sizeof caller) != 0) {
    return;
  }
  stack += static_cast<greg_t>(sizeof caller);
  pc_of(context) = static_cast<greg_t>(caller);
#elif defined(__aarch64__)
  pc_of(context) = context.uc_mcontext.regs[30];
#endif
}

// `name+0x1c (library)`, or `library+0x1c`, which addr2line -e takes.
void add_frame(Text& text, std::uint64_t address, bool first) {
  if (!first) text.add(", ");
  Dl_info info{};
  if (::dladdr(std::bit_cast<void*>(address), &info) == 0) {
    text.hex(address);
    return;
  }
  if (info.dli_sname != nullptr) {
    text.add(info.dli_sname).add("+");
    text.hex(address - reinterpret_cast<std::uint64_t>(info.dli_saddr));
    text.add(" (").add(file_name(info.dli_fname)).add(")");
  } else {
    text.add(file_name(info.dli_fname)).add("+");
    text.hex(address - reinterpret_cast<std::uint64_t>(info.dli_fbase));
  }
}

void write_backtrace(Text& text, std::uint64_t pc) {
  void* frames[kFrames];
  const int count = ::backtrace(frames, kFrames);
  // The first ones are of this handler.
  int start = 0;
  while (start < count && reinterpret_cast<std::uint64_t>(frames[start]) != pc) ++start;
  if (start == count) {  // the unwinder didn't get there
    add_frame(text, pc, true);
    return;
  }
  for (int i = start; i < count && text.left() > 24; ++i) {
    if (i > start + 1 && frames[i] == frames[i - 1]) {
      if (frames[i] != frames[i - 2]) text.add(" again and again");
      continue;
    }
    add_frame(text, reinterpret_cast<std::uint64_t>(frames[i]), i == start);
  }
}

// The same signal ends the process by itself if what follows takes too long.
void limit_backtrace(int signal) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = signal;
  int timer = 0;  // the kernel's type; the C library's functions are not async-signal-safe
  if (::syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0) return;
  itimerspec limit{};
  limit.it_value.tv_sec = kBacktraceSeconds;
  ::syscall(SYS_timer_settime, timer, 0, &limit, nullptr);
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

struct CrashHandler {
  static void install(CrashWatch& watch) {
    const std::lock_guard lock(mutex);
    if (mark == nullptr || mark->forked()) {
      // What is there of watches was left by the process that this one was forked from.
      for (auto& old : watches) old = nullptr;
      count = 0;
      crashing = 0;
      owner = ::getpid();
      mark = new ForkMark;  // never destroyed: a handler may look at it at any time
      void* frame = nullptr;
      ::backtrace(&frame, 1);  // loads the unwinder, which a handler must not
    }
    const auto free = std::find(watches.begin(), watches.end(), nullptr);
    if (free == watches.end()) return;
    if (count++ == 0) {
      struct sigaction action {};
      action.sa_sigaction = &CrashHandler::handle;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      ::sigemptyset(&action.sa_mask);
      ::sigaddset(&action.sa_mask, SIGPIPE);  // of a stderr that nobody reads any more
      for (const int signal : kSignals) {
        struct sigaction before {};
        ::sigaction(signal, nullptr, &before);
        if (before.sa_handler == SIG_DFL) ::sigaction(signal, &action, nullptr);
      }
    }
    free->store(&watch);
  }

  static void remove(CrashWatch& watch) {
    const std::lock_guard lock(mutex);
    const auto mine = std::find(watches.begin(), watches.end(), &watch);
    if (mine == watches.end()) return;
    mine->store(nullptr);
    while (crashing.load() != 0 && !mark->forked()) ::pause();
    if (--count == 0) restore_defaults();
  }

  // The dispositions that are still this handler's.
  static void restore_defaults() {
    for (const int signal : kSignals) {
      struct sigaction now {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_sigaction != &CrashHandler::handle) continue;
      now = {};
      now.sa_handler = SIG_DFL;
      ::sigaction(signal, &now, nullptr);
    }
  }

  static void handle(int signal, siginfo_t* info, void* where) {
    // A child of vfork shares the mark.
    if (mark->forked() || ::getpid() != owner) return end_process(signal, *info);
    const int me = static_cast<int>(::syscall(SYS_gettid));
    int first = 0;
    if (!crashing.compare_exchange_strong(first, me)) {
      // What describes a crash has crashed, or took too long.
      if (first == me || info->si_code == SI_TIMER) return end_process(signal, *info);
      for (;;) ::pause();  // the process ends with the crash of the thread that was first
    }
    limit_backtrace(signal);
    describe(signal, *info, *static_cast<ucontext_t*>(where));
    end_process(signal, *info);
  }

  static void describe(int signal, const siginfo_t& info, ucontext_t& context) {
    CrashFacts facts{.signal = signal, .code = info.si_code};
    const bool sent =
        info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL;
    if (sent && info.si_pid != ::getpid()) facts.sender = info.si_pid;
    if (info.si_code > 0) facts.address = reinterpret_cast<std::uint64_t>(info.si_addr);
    facts.pc = static_cast<std::uint64_t>(pc_of(context));
    facts.stack = static_cast<std::uint64_t>(stack_of(context));
    if (::syscall(SYS_gettid) != ::getpid()) {
      ::prctl(PR_GET_NAME, facts.thread.data(), 0, 0, 0);
      facts.thread.back() = '\0';
    }
    for_each([&](const CrashWatch& watch) {
      watch.slot_.facts = facts;
      watch.slot_.stage.store(CrashSlot::facts_known, std::memory_order_release);
    });

    static std::array<char, sizeof CrashSlot::backtrace> backtrace;
    Text text(backtrace.data(), backtrace.size());
    const ucontext_t before = context;
    const Crash crash{.facts = facts, .backtrace = {}};
    if (crash.is_bad_call()) step_back(context);
    write_backtrace(text, static_cast<std::uint64_t>(pc_of(context)));
    context.uc_mcontext = before.uc_mcontext;
    for_each([&](const CrashWatch& watch) {
      watch.slot_.backtrace = backtrace;
      watch.slot_.stage.store(CrashSlot::complete, std::memory_order_release);
      watch.tell_(watch.argument_);
    });

    // Last, since whoever should read it may not.
    char line[128];
    Text head(line, sizeof line);
    const char* name = ::sigabbrev_np(signal);
    head.add(CrashWatch::kMark).add("SIG").add(name != nullptr ? name : "?");
    if (info.si_code > 0) head.add(", address ").hex(facts.address);
    head.add(", instruction at ").hex(facts.pc).add("\n");
    write_all({line, std::strlen(line)});
    write_all(CrashWatch::kMark);
    write_all({backtrace.data(), std::strlen(backtrace.data())});
    write_all("\n");
  }

  template <typename Visit>
  static void for_each(const Visit& visit) {
    for (const auto& watch : watches) {
      if (const CrashWatch* const one = watch.load()) visit(*one);
    }
  }

  static void end_process(int signal, const siginfo_t& info) {
    restore_defaults();
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
    // Only process 1 of a pid namespace is still here: it gets no signal of its own namespace that
    // it doesn't handle. Back in the instruction that failed, the kernel ends it.
    const bool fails_again = info.si_code > 0 && signal != SIGABRT && signal != SIGSYS;
    if (!fails_again) ::_exit(128 + signal);
  }

  static inline std::mutex mutex;
  static inline int count = 0;
  static inline const ForkMark* mark = nullptr;
  static inline pid_t owner = 0;
  static inline std::atomic<int> crashing{0};  // the thread that did first, or 0
  static inline std::array<std::atomic<const CrashWatch*>, CrashWatch::kMost> watches{};
};

CrashWatch::CrashWatch(CrashSlot& slot, Tell tell, void* argument)
    : slot_(slot), tell_(tell), argument_(argument) {
  CrashHandler::install(*this);
}

CrashWatch::~CrashWatch() { CrashHandler::remove(*this); }

namespace {

class AlternateStack {
 public:
  AlternateStack() {
    stack_t now{};
    if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    void* memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t mine{};
    mine.ss_sp = memory;
    mine.ss_size = kStackBytes;
    if (::sigaltstack(&mine, nullptr) == 0) {
      memory_ = memory;
    } else {
      ::munmap(memory, kStackBytes);
    }
  }
  ~AlternateStack() {
    if (memory_ == nullptr) return;
    stack_t now{};
    if (::sigaltstack(nullptr, &now) != 0) return;
    if (now.ss_sp == memory_) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      ::sigaltstack(&none, nullptr);
    }
    ::munmap(memory_, kStackBytes);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  void* memory_ = nullptr;
};

}  // namespace

void use_alternate_stack() { thread_local const AlternateStack stack; }

}  // namespace ranklink
