// Whatever ranks that know the secret may send to the server, in any order.

#include "driver/driver.h"
#include "exchange/coordinator.h"
#include "rendezvous/membership.h"

namespace ranklink {
namespace {

constexpr int kSize = 3;

Claim claim_of(int rank) {
  return {.version = RANKLINK_VERSION,
          .rank = rank,
          .size = kSize,
          .host = "node",
          .pid = 1000 + rank,
          .start_time = 7,
          .process = {},
          .timeout_ms = 60'000,
          .successor = {}};
}

void put_frame(Writer& to, int rank, FrameType type, ByteView payload) {
  to.put(static_cast<std::uint8_t>(rank));
  to.put(static_cast<std::uint8_t>(type));
  to.blob(payload);
}

}  // namespace

void fuzz(ByteView input) {
  Membership membership(
      {.size = kSize, .pids = {}, .reduce = Coordinator(), .reports_ends = false},
      {.send =
           [](int rank, FrameType, const SharedBytes& payload, const std::vector<SharedFd>&) {
             require(rank >= 0 && rank < kSize && payload != nullptr);
           },
       .abort_all = [](const SharedBytes& payload) { require(!payload->empty()); },
       .strangers = [] { return std::string(); }});
  bool claimed[kSize] = {};
  Reader reader(input);
  while (!reader.empty()) {
    const int rank = reader.get<std::uint8_t>() % kSize;
    const auto type = static_cast<FrameType>(reader.get<std::uint8_t>());
    const ByteView payload = reader.blob(65'536);
    // A rank's frames reach the membership only once its claim was taken.
    if (!claimed[rank]) {
      claimed[rank] = membership.claim(payload.empty() ? claim_of(rank) : Claim::decode(payload),
                                       -1, {true, ""}, 0);
    } else if (type == FrameType{0}) {
      membership.on_close(rank);
    } else {
      std::vector<Fd> fds;
      if (type == FrameType::post) fds.emplace_back(::dup(0));
      membership.on_frame(rank, {type, Bytes(payload.begin(), payload.end()), std::move(fds), 1});
    }
    membership.tick();
    if (membership.failure()) require(membership.failure()->what() != nullptr);
  }
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> seeds;
  for (const int variant : {0, 1, 2}) {
    Writer w;
    for (int rank = 0; rank < kSize; ++rank) put_frame(w, rank, FrameType::claim, {});
    if (variant == 0) {
      for (int rank = 0; rank < kSize; ++rank) {
        put_frame(w, rank, FrameType::submit, Submission{0, "x", 1000, Bytes(2)}.encode());
      }
      put_frame(w, 1, FrameType::goodbye, {});
    } else if (variant == 1) {
      put_frame(w, 0, FrameType::post, Posting{1, {1, 2}}.encode());
      Writer ack;
      ack.put(std::uint32_t{1});
      put_frame(w, 1, FrameType::pass_ack, ack.bytes());
      put_frame(w, 0, FrameType::broker, Posting{2, {1}}.encode());
      put_frame(w, 1, FrameType::broker, Posting{2, {0}}.encode());
    } else {
      for (int rank = 0; rank < kSize; ++rank) {
        put_frame(w, rank, FrameType::submit,
                  Submission{0, "inspect", 1000, introduce({}, Settings(), {}).encode()}.encode());
      }
      put_frame(w, 2, FrameType{0}, {});
    }
    seeds.push_back(w.bytes());
  }
  return seeds;
}

}  // namespace ranklink
