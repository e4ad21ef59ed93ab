#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "rendezvous/control_page.h"
#include "route/routes.h"

namespace ranklink {

/// Ranks that are threads of this process, with one control page and routes of every kind between
/// them. Nothing is mapped twice, so that ThreadSanitizer sees all that they share.
class RankThreads {
 public:
  enum class Kind { mapped, stream };
  /// By which kind `from` writes into the memory of `to`.
  using Kinds = Kind (*)(int from, int to);

  static Kind all_mapped(int, int) { return Kind::mapped; }
  static Kind all_streams(int, int) { return Kind::stream; }
  /// One rank that shares no memory, one pair that shares it one way only, all others mapped.
  static Kind mixed(int from, int to) {
    if (from == 1 || to == 1) return Kind::stream;
    return from == 0 && to == 2 ? Kind::stream : Kind::mapped;
  }

  static std::string name_of(Kinds kinds) {
    return kinds == all_mapped ? "Mapped" : kinds == all_streams ? "Streams" : "Mixed";
  }

  /// Signals, and the count of collectives, start at `sequence`.
  RankThreads(int size, Kinds plan, std::uint32_t sequence = 0)
      : size_(size), page_(ControlPage::create(size)) {
    const SegmentLayout layout(size);
    for (int rank = 0; rank < size; ++rank) {
      // Signals need the alignment of their cache lines.
      segments_.emplace_back(new (std::align_val_t{4096}) std::byte[layout.bytes()]);
      std::memset(segments_.back().get(), 0, layout.bytes());
      for (int peer = 0; peer < size; ++peer) {
        for (std::size_t channel = 0; channel < kChannels; ++channel) {
          signal_word(segment(rank), layout.signal(peer, static_cast<Channel>(channel)))
              .store(sequence);
        }
      }
    }
    std::vector<std::vector<std::unique_ptr<Route>>> routes(static_cast<std::size_t>(size));
    for (auto& row : routes) row.resize(static_cast<std::size_t>(size));
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        std::unique_ptr<Route> a_stream;
        std::unique_ptr<Route> b_stream;
        if (plan(a, b) == Kind::stream || plan(b, a) == Kind::stream) {
          auto [one, other] = make_socketpair();
          a_stream = make_stream_route(std::move(one), segment(a), layout.bytes(), b);
          b_stream = make_stream_route(std::move(other), segment(b), layout.bytes(), a);
        }
        const auto route = [&](int to, Kind kind, std::unique_ptr<Route> stream) {
          return kind == Kind::stream ? std::move(stream)
                                      : make_mapped_route(segment(to), std::move(stream));
        };
        routes[at(a)][at(b)] = route(b, plan(a, b), std::move(a_stream));
        routes[at(b)][at(a)] = route(a, plan(b, a), std::move(b_stream));
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Routes>(
          rank, size, segment(rank), std::move(routes[at(rank)]), page_,
          Routes::Watch{.check =
                            [this](auto...) {
                              if (const auto failure = page_.failure()) throw *failure;
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
                            }},
          sequence));
    }
  }

  ControlPage& page() { return page_; }
  Routes& routes(int rank) { return *ranks_[at(rank)]; }
  /// Its routes end, as they do with a process.
  void end(int rank) { ranks_[at(rank)].reset(); }
  std::byte* segment(int rank) { return segments_[at(rank)].get(); }

  /// Runs `body` as each rank; what each threw, if it did.
  std::vector<std::optional<Error>> run(const std::function<void(Routes&)>& body) {
    std::vector<std::optional<Error>> thrown(at(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(routes(rank));
        } catch (const Error& error) {
          thrown[at(rank)] = error;
          page_.publish_failure(rank, error);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  /// As run(), where nobody may throw.
  void run_well(const std::function<void(Routes&)>& body) {
    for (const auto& error : run(body)) EXPECT_FALSE(error) << error->what();
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{4096}); }
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  int size_;
  ControlPage page_;
  std::vector<std::unique_ptr<std::byte[], Free>> segments_;
  std::vector<std::unique_ptr<Routes>> ranks_;
};

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
