// Whatever ranks send each other, and however slowly they read it: nothing is overwritten that
// isn't released.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "../unit/collective/rank_threads.h"

namespace ranklink {
namespace {

constexpr Milliseconds kSafetyNet{60'000};
constexpr std::uint32_t kTag = 0x42;

// What a rank sends, one message after the other, and to whom: all ranks know it of each other.
struct Message {
  std::size_t bytes = 0;
  std::uint32_t recipients = 0;  // a bit for each
  std::uint64_t seed = 0;

  bool is_for(int rank) const { return (recipients >> rank & 1) != 0; }
  bool is_large() const { return bytes > SegmentLayout::kInline; }
};

Message message_of(const Routes& routes, int from, std::uint32_t number) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from) << 32 | number);
  Message message;
  message.seed = random();
  switch (random() % 16) {
    case 0:
      message.bytes = routes.max_message() - random() % 3;
      break;
    case 1:
    case 2:
      message.bytes = random() % 20'000;
      break;
    case 3:
    case 4:
      message.bytes = SegmentLayout::kInline - 2 + random() % 5;
      break;
    default:
      message.bytes = random() % (SegmentLayout::kInline + 1);
  }
  const std::uint32_t all = (1u << routes.size()) - 1;
  message.recipients = static_cast<std::uint32_t>(random()) & all & ~(1u << from);
  if (message.recipients == 0) message.recipients = 1u << (from + 1) % routes.size();
  return message;
}

void fill(const Message& message, std::byte* place) {
  std::uint64_t word = message.seed;
  for (std::size_t at = 0; at < message.bytes; at += sizeof word, ++word) {
    std::memcpy(place + at, &word, std::min(sizeof word, message.bytes - at));
  }
}

bool is_whole(const Message& message, ByteView view) {
  std::uint64_t word = message.seed;
  for (std::size_t at = 0; at < message.bytes; at += sizeof word, ++word) {
    if (std::memcmp(view.data() + at, &word, std::min(sizeof word, message.bytes - at)) != 0) {
      return false;
    }
  }
  return true;
}

// One rank: sends when there is room, reads when it pleases.
class Actor {
 public:
  Actor(Routes& routes, std::uint32_t messages)
      : routes_(routes),
        messages_(messages),
        random_(static_cast<std::uint32_t>(routes.rank()) + 7),
        next_(static_cast<std::size_t>(routes.size()), 0),
        held_(next_.size()) {
    for (int peer = 0; peer < routes.size(); ++peer) find_next(peer);
  }

  void play() {
    routes_.begin(kTag, kSafetyNet);
    while (!done()) {
      bool moved = false;
      for (int turn = 0; turn < 8; ++turn) {
        if (random_() % 3 == 0) {
          moved = send() || moved;
        } else {
          moved = read(static_cast<int>(random_() % next_.size())) || moved;
        }
      }
      if (moved || done()) continue;
      routes_.begin(kTag, kSafetyNet);
      routes_.wait_for_any(other(), [&] { return can_move(); });
    }
    routes_.begin(kTag, kSafetyNet);
    routes_.end();
  }

 private:
  int other() const { return (routes_.rank() + 1) % routes_.size(); }
  bool done() const {
    if (sent_ < messages_) return false;
    for (int peer = 0; peer < routes_.size(); ++peer) {
      if (peer != routes_.rank() && next_[index(peer)] < messages_) return false;
    }
    return true;
  }
  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }

  bool has_room(const Message& message) {
    for (int peer = 0; peer < routes_.size(); ++peer) {
      if (message.is_for(peer) && !routes_.has_room(peer)) return false;
    }
    return true;
  }

  // Where there is room, nothing waits: a wait would end with an Error at once.
  bool send() {
    if (sent_ == messages_) return false;
    const Message message = message_of(routes_, routes_.rank(), sent_);
    if (!has_room(message)) return false;
    std::array<std::byte, SegmentLayout::kInline> small;
    std::byte* place = message.is_large() ? routes_.try_reserve(message.bytes) : small.data();
    if (place == nullptr) return false;
    fill(message, place);
    for (int peer = 0; peer < routes_.size(); ++peer) {
      if (!message.is_for(peer)) continue;
      routes_.begin(kTag, routes_.mapped(peer) ? Milliseconds(0) : kSafetyNet);
      routes_.put(peer, {place, message.bytes});
    }
    if (!message.is_large()) small.fill(std::byte{0xee});
    ++sent_;
    return true;
  }

  // A message is looked at when it comes, and again at some later time before it is released.
  bool read(int peer) {
    if (peer == routes_.rank() || next_[index(peer)] == messages_) return false;
    const Message message = message_of(routes_, peer, next_[index(peer)]);
    const auto view = routes_.look(peer, message.bytes);
    if (!view) return false;
    EXPECT_TRUE(is_whole(message, *view)) << next_[index(peer)] << " of rank " << peer;
    if (!held_[index(peer)] && random_() % 2 == 0) {
      held_[index(peer)] = true;
      return true;
    }
    held_[index(peer)] = false;
    routes_.release(peer);
    ++next_[index(peer)];
    find_next(peer);
    return true;
  }

  void find_next(int peer) {
    std::uint32_t& next = next_[index(peer)];
    while (next < messages_ && !message_of(routes_, peer, next).is_for(routes_.rank())) ++next;
  }

  bool can_move() {
    for (int peer = 0; peer < routes_.size(); ++peer) {
      if (peer == routes_.rank() || next_[index(peer)] == messages_) continue;
      if (routes_.look(peer, message_of(routes_, peer, next_[index(peer)]).bytes)) return true;
    }
    if (sent_ == messages_) return false;
    const Message message = message_of(routes_, routes_.rank(), sent_);
    return has_room(message) &&
           (!message.is_large() || routes_.try_reserve(message.bytes) != nullptr);
  }

  Routes& routes_;
  std::uint32_t messages_;
  std::mt19937 random_;
  std::uint32_t sent_ = 0;
  std::vector<std::uint32_t> next_;  // by peer: its next message for this rank
  std::vector<bool> held_;
};

class InboxesTest : public testing::TestWithParam<std::tuple<RankThreads::Kinds, int>> {
 protected:
  RankThreads::Kinds kinds() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, InboxesTest,
                         testing::Combine(testing::Values(RankThreads::all_mapped,
                                                          RankThreads::all_streams,
                                                          RankThreads::mixed),
                                          testing::Values(2, 3, 5)),
                         [](const auto& test) {
                           return RankThreads::name_of(std::get<0>(test.param)) +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(InboxesTest, NothingIsOverwrittenBeforeItIsReleased) {
  RankThreads ranks(size(), kinds(), 0xffff'ff80);
  ranks.run_well([&](Routes& routes) { Actor(routes, 300).play(); });
}

// Who writes without looking waits for the slowest reader, and overruns nobody.
TEST_P(InboxesTest, AGreedyWriterWaits) {
  constexpr std::uint32_t kMessages = 200;
  RankThreads ranks(size(), kinds(), 0xffff'ffc0);
  std::vector<std::atomic<std::uint32_t>> read(static_cast<std::size_t>(size()));
  ranks.run_well([&](Routes& routes) {
    const auto me = static_cast<std::size_t>(routes.rank());
    routes.begin(kTag, kSafetyNet);
    std::mt19937 random(static_cast<std::uint32_t>(me));
    std::vector<std::uint32_t> written(read.size());
    for (std::uint32_t number = 0; number < kMessages; ++number) {
      const Message message = message_of(routes, 0, number);
      if (me == 0) {
        std::array<std::byte, SegmentLayout::kInline> small;
        std::byte* place = message.is_large() ? routes.reserve(message.bytes) : small.data();
        fill(message, place);
        for (std::size_t peer = 1; peer < written.size(); ++peer) {
          if (!message.is_for(static_cast<int>(peer))) continue;
          routes.put(static_cast<int>(peer), {place, message.bytes});
          EXPECT_LE(++written[peer] - read[peer], SegmentLayout::kSlots);
        }
        continue;
      }
      if (!message.is_for(routes.rank())) continue;
      if (random() % 20 == 0) std::this_thread::sleep_for(Milliseconds(1));
      const ByteView view = routes.wait(0, message.bytes);
      EXPECT_TRUE(is_whole(message, view)) << number;
      if (random() % 10 == 0) std::this_thread::yield();
      EXPECT_TRUE(is_whole(message, view)) << number;
      ++read[me];
      routes.release(0);
    }
    routes.end();
  });
}

// A grant is seen only after it was given, and each once.
TEST_P(InboxesTest, GrantsAreUsedOnce) {
  constexpr int kGrants = 300;
  RankThreads ranks(size(), kinds(), 0xffff'ff80);
  std::vector<std::atomic<int>> given(static_cast<std::size_t>(size() * size()));
  ranks.run_well([&](Routes& routes) {
    const int me = routes.rank();
    std::mt19937 random(static_cast<std::uint32_t>(me));
    std::vector<int> used(static_cast<std::size_t>(size()));
    const auto use_all = [&] {
      bool any = false;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == me || !routes.granted(peer)) continue;
        routes.use_grant(peer);
        EXPECT_LE(++used[static_cast<std::size_t>(peer)],
                  given[static_cast<std::size_t>(peer * size() + me)]);
        any = true;
      }
      return any;
    };
    routes.begin(kTag, kSafetyNet);
    for (int i = 0; i < kGrants; ++i) {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == me) continue;
        ++given[static_cast<std::size_t>(me * size() + peer)];
        routes.grant(peer);
      }
      if (random() % 4 == 0) use_all();
    }
    routes.end();
    const auto all_used = [&] {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != me && used[static_cast<std::size_t>(peer)] < kGrants) return false;
      }
      return true;
    };
    while (!all_used()) routes.wait_for_any((me + 1) % size(), use_all);
    EXPECT_FALSE(use_all());
  });
}

}  // namespace
}  // namespace ranklink
