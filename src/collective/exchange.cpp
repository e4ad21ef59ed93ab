#include <functional>
#include <limits>
#include <optional>

#include "collective/pieces.h"

namespace ranklink {
namespace {

// Sends and receives of two ranks meet in their order. A message that fits a slot goes at once. A
// longer one waits until its receiver is ready, and then goes in pieces: space that it holds is
// soon free again, so no message waits for another's receiver. Where the receiver can pull, a large
// one stays where it is: the sender tells where that is, and waits until it is read.
class Exchange {
 public:
  Exchange(Workspace& work, const Call& call, std::size_t pull_from)
      : work_(work),
        routes_(work.routes),
        transfers_(call.transfers, call.count),
        pull_from_(pull_from) {}

  void run() {
    work_.transfers.assign(transfers_.size(), {});
    grant_all();
    copy_own();
    while (advance_all()) {
    }
  }

 private:
  bool is_pulled(const Transfer& transfer) const { return transfer.bytes >= pull_from_; }
  bool needs_grant(const Transfer& transfer) const {
    return transfer.bytes > SegmentLayout::kInline && !is_pulled(transfer);
  }
  bool is_own(const Transfer& transfer) const { return transfer.peer == routes_.rank(); }
  static bool is_send(const Transfer& transfer) { return transfer.kind == Transfer::Kind::send; }

  // A sender uses grants in the order of its messages, so all may be given at once.
  void grant_all() {
    for (const Transfer& transfer : transfers_) {
      if (!is_send(transfer) && needs_grant(transfer) && !is_own(transfer)) {
        routes_.grant(transfer.peer);
      }
    }
  }

  // The i-th send to oneself is the i-th receive from oneself; the caller has checked that they
  // fit.
  void copy_own() {
    std::size_t r = 0;
    for (std::size_t s = 0; s < transfers_.size(); ++s) {
      if (!is_own(transfers_[s]) || !is_send(transfers_[s])) continue;
      while (!is_own(transfers_[r]) || is_send(transfers_[r])) ++r;
      copy_bytes(static_cast<std::byte*>(transfers_[r].data),
                 static_cast<const std::byte*>(transfers_[s].data), transfers_[s].bytes);
      ++r;
    }
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      work_.transfers[i].done = is_own(transfers_[i]);
    }
  }

  // Does what can be done, and waits if that is nothing. False when all is done.
  bool advance_all() {
    int waits_for = -1;
    bool moved = false;
    const auto pass = [&] {
      waits_for = -1;
      moved = false;
      ++turn_;
      std::size_t undone = 0;
      for (std::size_t i = 0; i < transfers_.size(); ++i) {
        if (work_.transfers[i].done || !is_first(i)) continue;
        moved = (is_send(transfers_[i]) ? send(i) : receive(i)) || moved;
        // Another one each time, so that the end of any of them is noticed.
        if (!work_.transfers[i].done && (undone++ == 0 || turn_ % undone == 0)) {
          waits_for = transfers_[i].peer;
        }
      }
      return moved;
    };
    pass();
    if (waits_for < 0 && !moved) return false;
    if (moved) return true;
    // What a look has moved, no later look moves again.
    bool any = false;
    const auto look = [&] { return any = pass() || any; };
    routes_.wait_for_any(waits_for, std::ref(look));
    return true;
  }

  // Whether no earlier transfer with the same peer in the same direction is under way.
  bool is_first(std::size_t i) const {
    for (std::size_t k = 0; k < i; ++k) {
      if (!work_.transfers[k].done && transfers_[k].peer == transfers_[i].peer &&
          transfers_[k].kind == transfers_[i].kind) {
        return false;
      }
    }
    return true;
  }

  std::size_t piece(const Transfer& transfer, std::size_t moved) const {
    return std::min(std::min<std::size_t>(kPieceBytes, routes_.max_message()),
                    transfer.bytes - moved);
  }

  bool send(std::size_t i) {
    const Transfer& transfer = transfers_[i];
    Workspace::Progress& progress = work_.transfers[i];
    if (is_pulled(transfer) && progress.agreed) {
      return progress.done = routes_.delivered(transfer.peer);
    }
    if (!routes_.has_room(transfer.peer)) return false;
    const auto* data = static_cast<const std::byte*>(transfer.data);
    routes_.mark(transfer.bytes);
    if (is_pulled(transfer)) {
      routes_.tell(transfer.peer, data, transfer.bytes);
      return progress.agreed = true;
    }
    if (!needs_grant(transfer)) {
      routes_.put(transfer.peer, {data, transfer.bytes});
      return progress.done = true;
    }
    if (!progress.agreed) {
      if (!routes_.granted(transfer.peer)) return false;
      routes_.use_grant(transfer.peer);
      progress.agreed = true;
    }
    const std::size_t bytes = piece(transfer, progress.moved);
    std::byte* place = routes_.try_reserve(bytes);
    if (place == nullptr) return false;
    work_.outbox.copy(place, data + progress.moved, bytes);
    routes_.put(transfer.peer, {place, bytes});
    progress.moved += bytes;
    progress.done = progress.moved == transfer.bytes;
    return true;
  }

  bool receive(std::size_t i) {
    const Transfer& transfer = transfers_[i];
    Workspace::Progress& progress = work_.transfers[i];
    const std::size_t bytes = piece(transfer, progress.moved);
    routes_.mark(transfer.bytes);
    const std::optional<ByteView> message =
        routes_.look(transfer.peer, is_pulled(transfer) ? Routes::kTold : bytes);
    if (!message) return false;
    if (is_pulled(transfer)) {
      routes_.pull(transfer.peer, *message, static_cast<std::byte*>(transfer.data), transfer.bytes);
      return progress.done = true;
    }
    copy_bytes(static_cast<std::byte*>(transfer.data) + progress.moved, message->data(), bytes,
               transfer.bytes >= kStreamingBytes);
    routes_.release(transfer.peer);
    progress.moved += bytes;
    progress.done = progress.moved == transfer.bytes;
    return true;
  }

  // Small, so that one side copies in what the other copies out.
  static constexpr std::size_t kPieceBytes = 16 << 10;

  Workspace& work_;
  Routes& routes_;
  std::span<const Transfer> transfers_;
  std::size_t pull_from_;  // bytes
  std::size_t turn_ = 0;
};

void by_grants(Workspace& work, const Call& call) {
  Exchange(work, call, std::numeric_limits<std::size_t>::max()).run();
}

// Below, two copies take less time than the kernel's call.
constexpr std::size_t kPullFrom = 16 << 10;

void by_pull(Workspace& work, const Call& call) { Exchange(work, call, kPullFrom).run(); }

}  // namespace

const Algorithm kExchangeGrants = {Collective::exchange, "grants", Needs::messages, by_grants};
const Algorithm kExchangePull = {Collective::exchange, "pull", Needs::pull, by_pull};

}  // namespace ranklink
