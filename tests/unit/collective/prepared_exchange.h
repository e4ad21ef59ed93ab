#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "call_memory.h"

namespace ranklink {

/// An exchange: what each rank sends to whom, and the receives that fit, in any order that keeps
/// that of each pair of ranks.
class PreparedExchange : public Prepared {
 public:
  explicit PreparedExchange(int ranks, std::uint32_t seed = 1,
                            const Algorithm& algorithm = kExchangeGrants)
      : algorithm_(&algorithm), random_(seed), transfers_(static_cast<std::size_t>(ranks)) {}

  /// One message of these bytes.
  void add(int from, int to, std::size_t bytes) {
    Bytes data(bytes);
    std::uint64_t word = random_();
    for (std::size_t at = 0; at < bytes; at += sizeof word, ++word) {
      std::memcpy(data.data() + at, &word, std::min(sizeof word, bytes - at));
    }
    std::byte* output = make(bytes, random_() % 64);
    std::byte* input = make(bytes, random_() % 64);
    copy(output, data);
    row(from).push_back({Transfer::Kind::send, to, output, bytes});
    row(to).push_back({Transfer::Kind::recv, from, input, bytes});
    expect(static_cast<std::size_t>(to), DataType::u8, input, data);
    expect(static_cast<std::size_t>(from), DataType::u8, output, std::move(data));
  }

  /// Any messages between any ranks, themselves too.
  void add_any(std::size_t messages, std::size_t most_bytes) {
    const auto any_rank = [&] { return static_cast<int>(random_() % transfers_.size()); };
    for (std::size_t i = 0; i < messages; ++i) {
      const int from = any_rank();
      // Small ones are as frequent as large ones.
      const std::size_t limit = std::max<std::size_t>(1, most_bytes >> random_() % 16);
      add(from, any_rank(), random_() % (limit + 1));
    }
    for (auto& transfers : transfers_) shuffle(transfers);
  }

  std::vector<Transfer>& row(int rank) { return transfers_[static_cast<std::size_t>(rank)]; }

  Call call(int rank) const {
    const auto& transfers = transfers_[static_cast<std::size_t>(rank)];
    Call call{.collective = Collective::exchange, .count = transfers.size()};
    call.transfers = transfers.data();
    return call;
  }
  void run(Workspace& work) const override { do_call(work, *algorithm_, call(work.routes.rank())); }
  std::string text() const override { return "exchange=" + std::string(algorithm_->name); }

 private:
  // Keeps the order of those with one peer in one direction.
  void shuffle(std::vector<Transfer>& transfers) {
    for (std::size_t i = 0; i + 1 < transfers.size(); ++i) {
      const std::size_t at = random_() % (transfers.size() - 1);
      Transfer& a = transfers[at];
      Transfer& b = transfers[at + 1];
      if (a.peer != b.peer || a.kind != b.kind) std::swap(a, b);
    }
  }

  const Algorithm* algorithm_;
  std::mt19937_64 random_;
  std::vector<std::vector<Transfer>> transfers_;  // by rank
};

}  // namespace ranklink
