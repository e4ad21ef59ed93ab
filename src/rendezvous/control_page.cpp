#include "rendezvous/control_page.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/error_codec.h"

#if defined(__SANITIZE_THREAD__)
#define RANKLINK_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RANKLINK_THREAD_SANITIZER 1
#endif
#endif

namespace ranklink {
namespace {

constexpr std::uint64_t kMagic = 0x3145474150544e4b;  // "KNTPAGE1"
constexpr std::size_t kStepWords = 6;                 // 48 bytes of text
constexpr std::size_t kFailureBytes = 1792;
constexpr std::size_t kFailureText = 1728;  // of kFailureBytes; the rest is numbers and lengths
constexpr int kMaxRanks = 65'536;
constexpr std::uint32_t kAwaitsAny = 0xffff'ffff;

// An operation in one word: whether the rank is in it, the collective, the group, the number.
std::uint64_t pack(Operation operation, bool in) {
  return (in ? 1 : 0) | (static_cast<std::uint64_t>(operation.collective) + 1) << 1 |
         static_cast<std::uint64_t>(operation.group) << 8 | operation.sequence << 24;
}

std::optional<Operation> unpack(std::uint64_t word) {
  const std::uint64_t collective = word >> 1 & 0x7f;
  // Nothing a peer wrote is used unchecked.
  if (collective == 0 ||
      collective - 1 > static_cast<std::uint64_t>(Collective::make_shared_buffer)) {
    return std::nullopt;
  }
  return Operation{.collective = static_cast<Collective>(collective - 1),
                   .group = static_cast<std::uint16_t>(word >> 8),
                   .sequence = word >> 24};
}

}  // namespace

struct alignas(64) ControlPage::Header {
  std::uint64_t magic;
  std::atomic<std::uint32_t> size;
  std::atomic<std::uint32_t> winner;  // 1 + the slot whose failure was first, or 0
};

struct alignas(64) ControlPage::Slot {
  // What peers look at when they have done something, apart from what the rank stores in each call.
  FutexWord doorbell;
  std::atomic<std::uint32_t> awaited;  // 1 + the rank that a sleeper waits for, kAwaitsAny, or 0
  FutexWord liveness;
  std::atomic<State> state;
  alignas(64) std::atomic<std::uint64_t> operation;  // see pack()
  std::atomic<std::uint32_t> step_version;           // odd while the step is being written
  std::array<std::atomic<std::uint64_t>, kStepWords> step;
  std::atomic<std::uint32_t> failure_size;  // set last
  std::array<std::byte, kFailureBytes> failure;
  CrashSlot crash;
};

ControlPage::ControlPage(Fd fd, Mapping mapping, int size)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), size_(size) {}

ControlPage::Header& ControlPage::header() const {
  return *std::launder(reinterpret_cast<Header*>(mapping_.data()));
}

ControlPage::Slot& ControlPage::slot(int rank) const {
  return *std::launder(reinterpret_cast<Slot*>(mapping_.data() + sizeof(Header) +
                                               static_cast<std::size_t>(rank) * sizeof(Slot)));
}

ControlPage ControlPage::create(int size) {
  // One slot more than ranks: the rendezvous server's own failure.
  const std::size_t bytes = sizeof(Header) + (static_cast<std::size_t>(size) + 1) * sizeof(Slot);
  Fd fd = make_shared_memory("ranklink-control", bytes);
  Mapping mapping(fd.get(), bytes);
  ControlPage page(std::move(fd), std::move(mapping), size);
  page.header().magic = kMagic;
  page.header().size = static_cast<std::uint32_t>(size);
  return page;
}

ControlPage ControlPage::open(Fd fd, int size) {
  if (size < 1 || size > kMaxRanks) Reader::fail("a control page of an absurd size");
  const std::size_t bytes = sizeof(Header) + (static_cast<std::size_t>(size) + 1) * sizeof(Slot);
  check_shared_memory(fd.get(), bytes);
  Mapping mapping(fd.get(), bytes);
  ControlPage page(std::move(fd), std::move(mapping), size);
  if (page.header().magic != kMagic || page.header().size != static_cast<std::uint32_t>(size)) {
    Reader::fail("a control page of another kind or size");
  }
  return page;
}

void ControlPage::set_step(int rank, const std::string& step) {
  Slot& s = slot(rank);
  std::array<std::uint64_t, kStepWords> words{};
  std::memcpy(words.data(), step.data(), std::min(step.size(), sizeof words - 1));
  s.step_version.fetch_add(1, std::memory_order_acq_rel);
  // Released, or a processor may let a word be seen before the odd version.
  for (std::size_t i = 0; i < kStepWords; ++i) s.step[i].store(words[i], std::memory_order_release);
  s.step_version.fetch_add(1, std::memory_order_release);
  s.operation.store(0, std::memory_order_release);
}

std::string ControlPage::step(int rank) const {
  const Slot& s = slot(rank);
  std::array<char, kStepWords * 8 + 1> text{};
  // A writer that died in between leaves the version odd; what is there then is better than
  // nothing.
  for (int tries = 0; tries < 100; ++tries) {
    const std::uint32_t before = s.step_version.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < kStepWords; ++i) {
      const std::uint64_t word = s.step[i].load(std::memory_order_acquire);
      std::memcpy(text.data() + i * 8, &word, 8);
    }
    if (before % 2 == 0 && s.step_version.load(std::memory_order_acquire) == before) break;
  }
  const std::uint64_t word = s.operation.load(std::memory_order_acquire);
  const auto operation = unpack(word);
  if (!operation) return text.data();
  return fmt::format("{}{} #{}{}", word % 2 == 0 ? "its program, after " : "",
                     to_string(operation->collective), operation->sequence,
                     operation->group == 0 ? "" : " of a subgroup");
}

void ControlPage::begin_operation(int rank, Operation operation) {
  slot(rank).operation.store(pack(operation, true), std::memory_order_release);
}

void ControlPage::end_operation(int rank, Operation operation) {
  slot(rank).operation.store(pack(operation, false), std::memory_order_release);
}

void ControlPage::set_state(int rank, State state) {
  slot(rank).state.store(state, std::memory_order_release);
}

std::optional<Operation> ControlPage::operation(int rank) const {
  return unpack(slot(rank).operation.load(std::memory_order_acquire));
}

ControlPage::State ControlPage::state(int rank) const {
  return slot(rank).state.load(std::memory_order_acquire);
}

FutexWord& ControlPage::liveness_word(int rank) { return slot(rank).liveness; }

CrashSlot& ControlPage::crash_slot(int rank) { return slot(rank).crash; }

bool ControlPage::died(int rank) const {
  const Slot& s = slot(rank);
  return (s.liveness.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0 ||
         s.crash.is_complete();
}

std::optional<Crash> ControlPage::crash(int rank) const { return slot(rank).crash.read(); }

bool ControlPage::publish_failure(int index, const Error& error) {
  const std::lock_guard lock(sleepers_->publishing);
  Slot& s = slot(index);
  if (s.failure_size.load(std::memory_order_acquire) != 0) return false;
  Writer bytes;
  encode(error, bytes, kFailureText);
  std::memcpy(s.failure.data(), bytes.bytes().data(), bytes.bytes().size());
  s.failure_size.store(static_cast<std::uint32_t>(bytes.bytes().size()), std::memory_order_release);
  std::uint32_t none = 0;
  const bool won = header().winner.compare_exchange_strong(
      none, static_cast<std::uint32_t>(index) + 1, std::memory_order_acq_rel);
  ring_all();
  return won;
}

bool ControlPage::failed() const { return header().winner.load(std::memory_order_acquire) != 0; }

std::optional<Error> ControlPage::failure() const {
  const std::uint32_t winner = header().winner.load(std::memory_order_acquire);
  if (winner == 0 || winner > static_cast<std::uint32_t>(size_) + 1) return std::nullopt;
  const Slot& s = slot(static_cast<int>(winner) - 1);
  const std::uint32_t size = s.failure_size.load(std::memory_order_acquire);
  if (size == 0 || size > kFailureBytes) return std::nullopt;
  const Bytes bytes(s.failure.begin(), s.failure.begin() + size);
  Reader reader{bytes};
  try {
    return decode_error(reader);
  } catch (const Error&) {
    return Error({.code = ErrorCode::rank_failed,
                  .cause = "the job has failed, and the reason on the control page is garbled",
                  .remedy = "look at the output of the ranks"});
  }
}

// The sleeper names whom it waits for, then looks once more at what it waits for, and compares the
// doorbell; the waker has stored that, and then reads the name: one of the two sees the other.
void ControlPage::sleep(int rank, int awaited, const std::function<bool()>& ready,
                        Deadline deadline, std::chrono::nanoseconds slice) const {
  Slot& s = slot(rank);
  {
    const std::lock_guard lock(sleepers_->mutex);
    const std::uint32_t name =
        awaited == kAnyRank ? kAwaitsAny : static_cast<std::uint32_t>(awaited) + 1;
    s.awaited.exchange(sleepers_->count++ == 0 ? name : kAwaitsAny, std::memory_order_seq_cst);
  }
  order_before_wake();
  const std::uint32_t seen = s.doorbell.load(std::memory_order_acquire);
  if (!ready() && !failed()) futex_wait(s.doorbell, seen, deadline, slice);
  const std::lock_guard lock(sleepers_->mutex);
  s.awaited.store(--sleepers_->count == 0 ? 0 : kAwaitsAny, std::memory_order_seq_cst);
}

// ThreadSanitizer doesn't know fences: for it, wake() changes the word that the sleeper changes.
void ControlPage::order_before_wake() {
#if !RANKLINK_THREAD_SANITIZER
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

void ControlPage::wake(int rank, int from) {
  Slot& s = slot(rank);
#if RANKLINK_THREAD_SANITIZER
  const std::uint32_t awaited = s.awaited.fetch_add(0, std::memory_order_seq_cst);
#else
  const std::uint32_t awaited = s.awaited.load(std::memory_order_relaxed);
#endif
  if (awaited != static_cast<std::uint32_t>(from) + 1 && awaited != kAwaitsAny) return;
  s.doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(s.doorbell);
}

void ControlPage::ring_all() {
  for (int rank = 0; rank < size_; ++rank) {
    slot(rank).doorbell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(slot(rank).doorbell);
  }
}

LivenessBeacon::LivenessBeacon(ControlPage& page, int rank) {
  FutexWord& word = page.liveness_word(rank);
  FutexWord started{0};
  thread_ = std::thread([this, &word, &started] {
    // The kernel finds the word by its distance from a node of this thread's robust list.
    robust_list node;
    robust_list_head list;
    node.next = &list.list;
    list.list.next = &node;
    list.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&node);
    list.list_op_pending = nullptr;
    word.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)) | FUTEX_WAITERS);
    ::syscall(SYS_set_robust_list, &list, sizeof list);
    started.store(1, std::memory_order_release);
    futex_wake_all(started);
    while (stop_.load(std::memory_order_acquire) == 0) {
      futex_wait(stop_, 0, Deadline::never(), std::chrono::hours(1));
    }
    word.store(0, std::memory_order_release);
    ::syscall(SYS_set_robust_list, nullptr, sizeof list);
  });
  while (started.load(std::memory_order_acquire) == 0) {
    futex_wait(started, 0, Deadline::never(), std::chrono::seconds(1));
  }
}

LivenessBeacon::~LivenessBeacon() {
  stop_.store(1, std::memory_order_release);
  futex_wake_all(stop_);
  thread_.join();
}

}  // namespace ranklink
