#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/process_memory.h"
#include "base/socket.h"
#include "collective/algorithm.h"
#include "collective/choose.h"
#include "rendezvous/control_page.h"
#include "route/routes.h"

namespace ranklink {

/// Whether this process may read itself by process_vm_readv(2), which some sandboxes and qemu-user
/// don't let it; says so where not.
inline bool can_pull() {
  static const bool can = [] {
    const auto one = std::byte{1};
    auto copy = std::byte{0};
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&one));
    const int error = read_process_memory(::getpid(), address, &copy, 1);
    if (error != 0) {
      std::cout << "[   NOTE   ] no algorithm that pulls is tried: process_vm_readv: "
                << std::strerror(error) << std::endl;
    }
    return error == 0;
  }();
  return can;
}

/// Ranks that are threads of this process, with one control page and routes of every kind between
/// them. Nothing is mapped twice, so that ThreadSanitizer sees all that they share.
class RankThreads {
 public:
  enum class Kind { mapped, stream };
  /// By which kind `from` writes into the memory of `to`.
  using Kinds = Kind (*)(int from, int to);

  static Kind all_mapped(int, int) { return Kind::mapped; }
  static Kind all_streams(int, int) { return Kind::stream; }
  /// One rank that shares no memory, and one pair that doesn't; all others mapped.
  static Kind mixed(int from, int to) {
    if (from == 1 || to == 1) return Kind::stream;
    return from + to == 6 ? Kind::stream : Kind::mapped;
  }

  static std::string name_of(Kinds kinds) {
    return kinds == all_mapped ? "Mapped" : kinds == all_streams ? "Streams" : "Mixed";
  }

  /// Messages are counted from `sequence`.
  RankThreads(int size, Kinds plan, std::uint32_t sequence = 0)
      : RankThreads(std::make_shared<ControlPage>(ControlPage::create(size)), all_of(size), plan,
                    sequence) {}
  /// Some of the ranks of a page, in this order.
  RankThreads(std::shared_ptr<ControlPage> page, std::vector<int> members, Kinds plan,
              std::uint32_t sequence = 0)
      : members_(std::move(members)), page_(std::move(page)) {
    const int size = this->size();
    const SegmentLayout layout(size);
    for (int rank = 0; rank < size; ++rank) {
      // Heads and credits need the alignment of their cache lines.
      segments_.emplace_back(new (std::align_val_t{4096}) std::byte[layout.bytes()]);
      std::memset(segments_.back().get(), 0, layout.bytes());
      Routes::prepare(segment(rank), size, sequence);
    }
    std::vector<std::vector<Routes::Peer>> peers(at(size));
    for (auto& row : peers) row.resize(at(size));
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        if (plan(members_[at(a)], members_[at(b)]) == Kind::mapped) {
          peers[at(a)][at(b)].segment = segment(b);
          peers[at(b)][at(a)].segment = segment(a);
          peers[at(a)][at(b)].pid = peers[at(b)][at(a)].pid = ::getpid();
          continue;
        }
        auto [one, other] = make_socketpair();
        const std::size_t most = layout.bank_bytes();
        peers[at(a)][at(b)].stream = std::make_unique<Stream>(std::move(one), most, sequence, b);
        peers[at(b)][at(a)].stream = std::make_unique<Stream>(std::move(other), most, sequence, a);
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Routes>(
          Routes::Setup{.rank = rank,
                        .members = members_,
                        .own = segment(rank),
                        .peers = std::move(peers[at(rank)]),
                        .sequence = sequence,
                        .crowded = true},
          *page_,
          Routes::Watch{.check =
                            [this](auto...) {
                              if (const auto failure = page_->failure()) throw *failure;
                            },
                        .late =
                            [](int peer, const char* awaited) {
                              throw Error({.code = ErrorCode::op_timeout,
                                           .rank = peer,
                                           .cause = std::string(awaited) + " did not come"});
                            },
                        .lost =
                            [](int peer) {
                              throw Error({.code = ErrorCode::connection_lost,
                                           .rank = peer,
                                           .cause = "the stream closed"});
                            },
                        .mismatch =
                            [](int peer, std::uint32_t, std::uint32_t bytes, std::size_t expected) {
                              throw Error({.code = ErrorCode::call_mismatch,
                                           .rank = peer,
                                           .cause = "a message of " + std::to_string(bytes) +
                                                    " bytes in place of one of " +
                                                    std::to_string(expected)});
                            }}));
      work_.push_back(std::make_unique<Workspace>(*ranks_.back()));
      // Wherever the cores are now, some write their messages in either way.
      if (rank == 1) work_.back()->outbox = OutboxWriter(OutboxWriter::kNothing);
      if (rank == 2) work_.back()->outbox = OutboxWriter(OutboxWriter::kAnything);
    }
  }

  int size() const { return static_cast<int>(members_.size()); }
  ControlPage& page() { return *page_; }
  Routes& routes(int rank) { return *ranks_[at(rank)]; }
  Workspace& work(int rank) { return *work_[at(rank)]; }
  /// Its routes end, as they do with a process.
  void end(int rank) { ranks_[at(rank)].reset(); }
  std::byte* segment(int rank) { return segments_[at(rank)].get(); }

  /// Runs `body`, which takes Routes& or Workspace&, as each rank; what each threw, if it did.
  template <typename Body>
  std::vector<std::optional<Error>> run(const Body& body) {
    std::vector<std::optional<Error>> thrown(members_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          if constexpr (std::is_invocable_v<Body, Routes&>) {
            body(routes(rank));
          } else {
            body(work(rank));
          }
        } catch (const Error& error) {
          thrown[at(rank)] = error;
          page_->publish_failure(members_[at(rank)], error);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  /// As run(), where nobody may throw.
  template <typename Body>
  void run_well(const Body& body) {
    for (const auto& error : run(body)) EXPECT_FALSE(error) << error->what();
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{4096}); }
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  static std::vector<int> all_of(int size) {
    std::vector<int> all(at(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  std::vector<int> members_;
  std::shared_ptr<ControlPage> page_;
  std::vector<std::unique_ptr<std::byte[], Free>> segments_;
  std::vector<std::unique_ptr<Routes>> ranks_;
  std::vector<std::unique_ptr<Workspace>> work_;
};

/// Does one call as a group would: by this algorithm, with messages that carry `tag`.
inline void do_call(Workspace& work, const Algorithm& algorithm, const Call& call,
                    Milliseconds timeout = std::chrono::seconds(60)) {
  work.routes.begin(static_cast<std::uint32_t>(call.collective) << 28, timeout);
  algorithm.run(work, call);
  work.routes.end();
}

/// As a group does it: by the algorithm that the table gives.
inline void do_call(Workspace& work, const Call& call,
                    Milliseconds timeout = std::chrono::seconds(60)) {
  const Choice choice(work.routes.size(), false, Forced{});
  do_call(work, choice.of(call.collective, call.count * size_of(call.type), false), call, timeout);
}

/// The sum of all ranks' data, in place.
inline void all_reduce_sum(Workspace& work, std::span<float> data,
                           Milliseconds timeout = std::chrono::seconds(60)) {
  do_call(
      work,
      {Collective::all_reduce, data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum},
      timeout);
}

inline void barrier(Workspace& work) { do_call(work, {.collective = Collective::barrier}); }

/// A value of its own for each rank and place, whose sums round.
inline float sample_value(int rank, std::size_t place) {
  const auto x = static_cast<std::uint32_t>(place) * 2'654'435'761u +
                 static_cast<std::uint32_t>(rank + 1) * 40'503u;
  return static_cast<float>(static_cast<std::int32_t>(x)) * 1.1920929e-7f;
}

/// What all_reduce_sum must give there: the sum in rank order, to the last bit.
inline float sample_sum(int size, std::size_t place) {
  float sum = sample_value(0, place);
  for (int rank = 1; rank < size; ++rank) sum += sample_value(rank, place);
  return sum;
}

}  // namespace ranklink
