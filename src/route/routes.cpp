#include "route/routes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/process_memory.h"

namespace ranklink {
namespace {

// A wait polls while the answer may come from a running peer, then lets others run, then sleeps: 8
// ranks on 2 cores make progress. A polling loop is not slowed down at first, since a pause takes
// as long as a small message.
constexpr int kPolls = 300;
constexpr int kCrowdedPolls = 20;
constexpr int kPauses = 500;
// Where each rank has a core of its own, some milliseconds: whoever sleeps while a peer copies much
// lets its core go cold, or finds itself on the other.
constexpr int kYields = 10'000;
constexpr int kCrowdedYields = 200;
constexpr int kLookAround = 16;  // rounds of yielding between looks at what isn't memory
// Who is waited for wakes the sleeper, and so does a failure; a slice only bounds what is lost if
// that ever fails, so it may grow: hundreds of ranks that look around every millisecond would take
// all the time there is.
constexpr std::chrono::milliseconds kFirstSleep{2};
constexpr std::chrono::milliseconds kLongestSleep{64};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sequence numbers wrap, so the difference counts.
bool reached(std::uint32_t have, std::uint32_t need) {
  return static_cast<std::int32_t>(have - need) >= 0;
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + SegmentLayout::kLine - 1) / SegmentLayout::kLine * SegmentLayout::kLine;
}

CopyJob& job_at(std::byte* line) { return *reinterpret_cast<CopyJob*>(line); }

/// How what both ends copy is cut: into pieces that are worth a system call, and so many that
/// neither end waits long for the other's last one.
struct Cut {
  explicit Cut(std::size_t all)
      : bytes(all),
        unit(std::max(std::clamp(all / kPieces, kLeast, kLargest), all / (CopyJob::kMost / 2))),
        pieces(all < 2 * kLeast ? 1 : (all + unit - 1) / unit) {}

  std::size_t begin(std::size_t piece) const { return piece * unit; }
  std::size_t size(std::size_t piece) const { return std::min(unit, bytes - piece * unit); }

  static constexpr std::size_t kPieces = 16;
  static constexpr std::size_t kLeast = 64 << 10;
  static constexpr std::size_t kLargest = 512 << 10;

  std::size_t bytes;
  std::size_t unit;
  std::size_t pieces;
};

MessageHead& head_at(std::byte* slot) { return *reinterpret_cast<MessageHead*>(slot); }

}  // namespace

/// The reader's side of a CopyJob. However the call ends, nobody writes to its memory any more when
/// it has.
class Routes::Job {
 public:
  static constexpr std::uint32_t kFailed = ~0u;  ///< as the number of pieces that were pushed

  Job(CopyJob& job, std::uint32_t number, const std::byte* to)
      : claims_(job.claims), pushed_(job.pushed) {
    job.address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(to));
    pushed_.store(0, std::memory_order_relaxed);
    claims_.store(std::uint64_t{number} << 32, std::memory_order_release);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    const std::size_t claimed = CopyJob::back(
        claims_.fetch_or(CopyJob::kMost * CopyJob::kFront, std::memory_order_acq_rel));
    // The kernel writes a piece in much less; a peer that is stopped or dead does not.
    const Deadline deadline = Deadline::after(kLastPush);
    while (pushed_.load(std::memory_order_acquire) < claimed && !deadline.passed()) ::sched_yield();
  }

  std::optional<std::size_t> claim_front(std::size_t pieces) {
    std::uint64_t seen = claims_.load(std::memory_order_relaxed);
    do {
      if (CopyJob::front(seen) + CopyJob::back(seen) >= pieces) return std::nullopt;
    } while (
        !claims_.compare_exchange_weak(seen, seen + CopyJob::kFront, std::memory_order_acq_rel));
    return CopyJob::front(seen);
  }
  bool all_pushed() const {
    return pushed_.load(std::memory_order_acquire) ==
           CopyJob::back(claims_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr Milliseconds kLastPush{500};

  std::atomic_ref<std::uint64_t> claims_;
  std::atomic_ref<std::uint32_t> pushed_;
};

Routes::Routes(Setup setup, ControlPage& page, Watch watch)
    : rank_(setup.rank),
      members_(std::move(setup.members)),
      own_(setup.own),
      layout_(static_cast<int>(members_.size())),
      peers_(members_.size()),
      page_(&page),
      watch_(std::move(watch)),
      crowded_(setup.crowded),
      bank_last_(SegmentLayout::kBanks,
                 std::vector<std::uint64_t>(members_.size(), setup.sequence)) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Link& link = peers_[i];
    link.segment = setup.peers[i].segment;
    if (link.segment != nullptr) link.outbox = link.segment + layout_.outbox();
    link.stream = std::move(setup.peers[i].stream);
    link.pid = setup.peers[i].pid;
    link.sent = link.credit = link.last_large = setup.sequence;
    link.received = link.credited = setup.sequence;
    link.grants = link.grants_used = setup.sequence;
    if (link.stream) streams_.push_back(static_cast<int>(i));
  }
  unsettled_.reserve(peers_.size());
}

void Routes::prepare(std::byte* segment, int size, std::uint32_t sequence) {
  const SegmentLayout layout(size);
  std::memset(segment, 0, layout.control_bytes());
  for (int peer = 0; peer < size; ++peer) {
    word_at(segment, layout.credit(peer)).store(sequence);
    word_at(segment, layout.grants(peer)).store(sequence);
    for (std::uint32_t i = 0; i < SegmentLayout::kSlots; ++i) {
      word_at(segment, layout.slot(peer, i)).store(sequence);
    }
  }
}

std::uint64_t Routes::credit_of(Link& link, int peer) {
  const std::uint32_t low =
      link.stream ? link.stream->credit()
                  : word_at(own_, layout_.credit(peer)).load(std::memory_order_acquire);
  link.credit = link.sent - static_cast<std::uint32_t>(static_cast<std::uint32_t>(link.sent) - low);
  return link.credit;
}

std::byte* Routes::reserve(std::size_t bytes) {
  std::byte* place = try_reserve(bytes);
  while (place == nullptr) {
    const std::size_t next = (bank_ + 1) % SegmentLayout::kBanks;
    const int peer = reader_of(next);  // nobody, if it has read it since
    if (peer >= 0) wait_until(peer, [&] { return reader_of(next) != peer; });
    place = try_reserve(bytes);
  }
  return place;
}

std::byte* Routes::try_reserve(std::size_t bytes) {
  const std::size_t space = round_up(bytes);
  if (used_ + space > layout_.bank_bytes()) {
    if (reader_of((bank_ + 1) % SegmentLayout::kBanks) >= 0) return nullptr;
    next_bank();
  }
  std::byte* place = own_ + layout_.outbox() + bank_ * layout_.bank_bytes() + used_;
  used_ += space;
  return place;
}

// The first peer that hasn't consumed the last message that it was to read in the bank; -1 if the
// bank is free. Behind a stream nobody reads it.
int Routes::reader_of(std::size_t bank) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int peer = static_cast<int>(i);
    const std::uint64_t last = bank_last_[bank][i];
    if (peer != rank_ && peers_[i].credit < last && credit_of(peers_[i], peer) < last) return peer;
  }
  return -1;
}

void Routes::next_bank() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    bank_last_[bank_][peer] = peers_[peer].last_large;
  }
  bank_ = (bank_ + 1) % SegmentLayout::kBanks;
  used_ = 0;
}

// Throws if the kernel's copy from or to the peer's memory has failed.
void Routes::copied(int peer, const char* call, std::size_t bytes, int error) {
  const int member = members_[index(peer)];
  // While it lives, its pid is nobody else's.
  if (error == 0 && !page_->died(member)) return;
  // A peer that has ended is known by better signs, at the second look at the latest.
  watch_.check(peer, false);
  watch_.check(peer, false);
  throw Error({.code = ErrorCode::system_call,
               .rank = member,
               .cause = fmt::format("{} of {} bytes of rank {}: {}", call, bytes, member,
                                    errno_text(error)),
               .remedy = "look at the memory that it gives, or set RANKLINK_ALGORITHM to one that "
                         "doesn't pull"});
}

void Routes::tell(int to, const std::byte* data, std::size_t bytes) {
  Link& link = peers_[index(to)];
  link.told = data;
  link.told_bytes = bytes;
  ++link.tells;
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
  put(to, std::as_bytes(std::span(&address, 1)));
}

void Routes::pull(int from, ByteView told, std::byte* to, std::size_t bytes) {
  Link& link = peers_[index(from)];
  std::uint64_t address = 0;
  std::memcpy(&address, told.data(), sizeof address);
  const auto read = [&](std::size_t begin, std::size_t size) {
    copied(from, "process_vm_readv", size,
           read_process_memory(link.pid, address + begin, to + begin, size));
  };
  const Cut cut(bytes);
  ++link.pulls;
  if (link.stream || cut.pieces == 1) {
    read(0, bytes);
  } else {
    Job job(job_at(own_ + layout_.job(from)), link.pulls, to);
    while (const auto piece = job.claim_front(cut.pieces)) {
      read(cut.begin(*piece), cut.size(*piece));
    }
    wait_until(from, [&] { return job.all_pushed(); });
  }
  release(from);
  link.credit_due = true;
  note_unsettled(link, from);
  settle();
}

bool Routes::delivered(int to) {
  Link& link = peers_[index(to)];
  if (link.credit == link.sent || credit_of(link, to) == link.sent) return true;
  if (!link.stream) push_some(link, to);
  return false;
}

void Routes::await_delivered(int to) {
  wait_until(to, [&] { return delivered(to); });
}

// One piece, so that the end of the rest is noticed soon.
void Routes::push_some(Link& link, int to) {
  const Cut cut(link.told_bytes);
  if (cut.pieces == 1) return;
  CopyJob& job = job_at(link.segment + layout_.job(rank_));
  std::atomic_ref claims(job.claims);
  std::uint64_t seen = claims.load(std::memory_order_acquire);
  const std::size_t back = CopyJob::back(seen);
  if (CopyJob::number(seen) != link.tells || CopyJob::front(seen) + back >= cut.pieces) return;
  const std::uint64_t address = job.address;
  if (!claims.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel)) return;
  const std::size_t piece = cut.pieces - 1 - back;
  const int error = write_process_memory(link.pid, address + cut.begin(piece),
                                         link.told + cut.begin(piece), cut.size(piece));
  std::atomic_ref pushed(job.pushed);
  if (error == 0) {
    pushed.fetch_add(1, std::memory_order_release);
  } else {
    pushed.store(Job::kFailed, std::memory_order_release);
  }
  ControlPage::order_before_wake();
  page_->wake(members_[index(to)], members_[index(rank_)]);
  copied(to, "process_vm_writev", cut.size(piece), error);
}

void Routes::grant(int from) {
  Link& link = peers_[index(from)];
  ++link.grants;
  link.grants_unsent = true;
  note_unsettled(link, from);
  settle();
}

bool Routes::granted(int to) {
  Link& link = peers_[index(to)];
  const std::uint32_t grants =
      link.stream ? link.stream->grants()
                  : word_at(own_, layout_.grants(to)).load(std::memory_order_acquire);
  return reached(grants, link.grants_used + 1);
}

bool Routes::has_room(int to) {
  Link& link = peers_[index(to)];
  return link.sent - link.credit < SegmentLayout::kSlots ||
         link.sent - credit_of(link, to) < SegmentLayout::kSlots;
}

void Routes::note_unsettled(Link& link, int peer) {
  if (link.unsettled) return;
  link.unsettled = true;
  unsettled_.push_back(peer);
}

void Routes::put(int to, ByteView message) {
  Link& link = peers_[index(to)];
  if (link.sent - link.credit >= SegmentLayout::kSlots) {
    wait_until(to, [&] { return has_room(to); });
  }
  ++link.sent;
  const auto sequence = static_cast<std::uint32_t>(link.sent);
  if (link.stream) {
    put_by_stream(to, link, message);
    return;
  }
  std::byte* slot = link.segment + layout_.slot(rank_, sequence);
  MessageHead& head = head_at(slot);
  // The peer polls the first line. Stores leave in their order, so between those to that line there
  // is none to another, for which the processor would give the line away and fetch it again.
  constexpr std::size_t kFirst = SegmentLayout::kLine - sizeof head;
  std::uint32_t place = 0;
  std::size_t first = 0;
  if (message.size() > SegmentLayout::kInline) {
    place = static_cast<std::uint32_t>(message.data() - (own_ + layout_.outbox()));
    link.last_large = link.sent;
  } else if (!message.empty()) {
    first = std::min(message.size(), kFirst);
    if (message.size() > kFirst) {
      std::memcpy(slot + SegmentLayout::kLine, message.data() + kFirst, message.size() - kFirst);
    }
  }
  if (first > 0) std::memcpy(slot + sizeof head, message.data(), first);
  head.tag = tag_;
  head.size = static_cast<std::uint32_t>(message.size());
  head.place = place;
  std::atomic_ref(head.sequence).store(sequence, std::memory_order_release);
  note_unsettled(link, to);
}

void Routes::put_by_stream(int to, Link& link, ByteView message) {
  std::size_t done = 0;
  if (link.stream->send(tag_, message, done)) return;
  // The peer may itself be sending to this rank, and wait for room: receiving goes on meanwhile.
  wait_long(to, false, [&] { return link.stream->send(tag_, message, done); });
}

ByteView Routes::view(int from, std::size_t size) {
  Link& link = peers_[index(from)];
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;
  const std::byte* data = nullptr;
  if (link.stream) {
    const Stream::Message& message = *link.stream->front();
    tag = message.tag;
    bytes = message.size;
    data = message.data.data();
  } else {
    std::byte* slot = own_ + layout_.slot(from, link.received + 1);
    const MessageHead& head = head_at(slot);
    tag = head.tag;
    bytes = head.size;
    data = slot + sizeof head;
    if (size > SegmentLayout::kInline && tag == tag_ && bytes == size) {
      // Nothing a peer wrote is used unchecked.
      const std::size_t place = head.place;
      if (place > layout_.outbox_bytes() - size) {
        throw Error({.code = ErrorCode::protocol_violation,
                     .rank = members_[index(from)],
                     .cause = "a message at a place outside of the outbox",
                     .remedy = "look for what writes over memory in that rank's process"});
      }
      data = link.outbox + place;
    }
  }
  if (tag != tag_ || bytes != size) watch_.mismatch(from, tag, bytes, size);
  return {data, size};
}

ByteView Routes::wait(int from, std::size_t size) {
  Link& link = peers_[index(from)];
  if (link.stream) {
    const auto here = [&] { return link.stream->front() != nullptr; };
    if (!here()) wait_long(from, false, here);
  } else {
    const std::uint32_t next = link.received + 1;
    const auto sequence = word_at(own_, layout_.slot(from, next));
    wait_until(from, [&] { return sequence.load(std::memory_order_acquire) == next; });
  }
  return view(from, size);
}

std::optional<ByteView> Routes::look(int from, std::size_t size) {
  Link& link = peers_[index(from)];
  if (link.stream) {
    if (link.stream->front() == nullptr) return std::nullopt;
  } else {
    const std::uint32_t next = link.received + 1;
    if (word_at(own_, layout_.slot(from, next)).load(std::memory_order_acquire) != next) {
      return std::nullopt;
    }
  }
  return view(from, size);
}

// A peer must learn of a large message soon, since it may need the space, and at the latest when
// this rank goes to sleep or back to its program; small ones hold nothing but slots, of which half
// are always known to be free.
void Routes::release(int from) {
  Link& link = peers_[index(from)];
  if (link.stream) {
    link.stream->pop();
  } else {
    const std::size_t bytes = head_at(own_ + layout_.slot(from, link.received + 1)).size;
    if (bytes > SegmentLayout::kInline) link.large_released += bytes;
  }
  ++link.received;
  if (link.received - link.credited >= SegmentLayout::kSlots / 2 ||
      link.large_released > layout_.bank_bytes() / 2) {
    link.credit_due = true;
    publish_credit(link);
    note_unsettled(link, from);  // it may be asleep for want of it
  }
  if (link.large_released > 0) note_unsettled(link, from);
}

void Routes::publish_credit(Link& link) {
  if (link.stream) {
    if (!link.stream->closed() && !link.stream->send_credit(link.received)) return;
  } else {
    word_at(link.segment, layout_.credit(rank_)).store(link.received, std::memory_order_release);
  }
  link.credited = link.received;
  link.large_released = 0;
  link.credit_due = false;
}

void Routes::publish_grants(Link& link) {
  if (link.stream) {
    if (!link.stream->closed() && !link.stream->send_grants(link.grants)) return;
  } else {
    word_at(link.segment, layout_.grants(rank_)).store(link.grants, std::memory_order_release);
  }
  link.grants_unsent = false;
}

void Routes::settle() {
  if (unsettled_.empty()) return;
  for (const int peer : unsettled_) {
    Link& link = peers_[index(peer)];
    if (link.credit_due || link.large_released > 0) publish_credit(link);
    if (link.grants_unsent) publish_grants(link);
    // A socket that takes nothing now may take it later.
    link.unsettled = link.credit_due || link.large_released > 0 || link.grants_unsent;
  }
  ControlPage::order_before_wake();
  for (const int peer : unsettled_) {
    if (!peers_[index(peer)].stream) page_->wake(members_[index(peer)], members_[index(rank_)]);
  }
  std::erase_if(unsettled_, [&](int peer) { return !peers_[index(peer)].unsettled; });
}

void Routes::end() {
  settle();
  for (const int peer : streams_) {
    const Stream& stream = *peers_[index(peer)].stream;
    const auto sent = [&] {
      return stream.closed() || (!peers_[index(peer)].unsettled && stream.wanted() == 0);
    };
    if (!sent()) wait_long(peer, false, sent);
  }
}

void Routes::progress() {
  for (const int peer : streams_) {
    Stream& stream = *peers_[index(peer)].stream;
    stream.send_rest();
    if (!stream.closed()) stream.receive();
  }
  if (!unsettled_.empty()) settle();
}

template <typename Ready>
void Routes::wait_until(int peer, const Ready& ready) {
  for (int i = crowded_ ? kCrowdedPolls : kPolls; i > 0; --i) {
    if (ready()) return;
  }
  wait_long(peer, false, std::ref(ready));
}

void Routes::look_around(int peer) {
  const Link& link = peers_[index(peer)];
  watch_.check(peer, link.stream && !link.stream->closed());
  if (link.stream && link.stream->closed()) watch_.lost(peer);
  if (!deadline_) deadline_ = Deadline::after(timeout_);
  if (deadline_->passed()) watch_.late(peer, "its message");
}

// The longer it lasts, the more it leaves the processor alone.
void Routes::wait_long(const int& peer, bool any, const std::function<bool()>& ready) {
  settle();
  const int pauses = crowded_ ? 0 : kPauses;
  const int most_yields = crowded_ ? kCrowdedYields : kYields;
  for (int round = 0;; ++round) {
    if (!streams_.empty()) progress();
    if (ready()) return;
    if (round < pauses) {
      pause_cpu();
      continue;
    }
    const int yields = round - pauses;
    if (yields < most_yields) {
      if (yields % kLookAround == 0) look_around(peer);
      ::sched_yield();
      continue;
    }
    look_around(peer);
    sleep(peer, any, yields - most_yields, ready);
  }
}

void Routes::sleep(int peer, bool any, int sleeps, const std::function<bool()>& ready) {
  if (streams_.empty()) {
    const int me = members_[index(rank_)];
    const int awaited = any ? ControlPage::kAnyRank : members_[index(peer)];
    page_->sleep(me, awaited, ready, *deadline_,
                 std::min(kFirstSleep * (1 << std::min(sleeps, 5)), kLongestSleep));
    return;
  }
  std::vector<pollfd> polls;
  for (const int stream : streams_) {
    Stream& s = *peers_[index(stream)].stream;
    if (s.fd() >= 0) polls.push_back({s.fd(), static_cast<short>(POLLIN | s.wanted()), 0});
  }
  // A mapped peer's message doesn't end this poll, so it is short.
  ::poll(polls.data(), polls.size(), 1);
}

}  // namespace ranklink
