#include "rendezvous/control_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace ranklink {
namespace {

using std::chrono::seconds;

constexpr Milliseconds kSafetyNet{100'000};

// Many fail at once: one reason wins, whole, and for all.
TEST(ControlPageThreads, AgreeOnOneOfManyFailures) {
  constexpr int kRanks = 8;
  for (int turn = 0; turn < 50; ++turn) {
    ControlPage page = ControlPage::create(kRanks);
    std::atomic<int> ready{0};
    std::vector<std::string> seen(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        ++ready;
        while (ready < kRanks) std::this_thread::yield();
        const std::string cause(100 + static_cast<std::size_t>(rank),
                                static_cast<char>('a' + rank));
        page.publish_failure(rank,
                             Error({.code = ErrorCode::rank_failed, .rank = rank, .cause = cause}));
        const auto failure = page.failure();
        if (failure) seen[static_cast<std::size_t>(rank)] = failure->cause();
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string& winner = seen[0];
    ASSERT_GE(winner.size(), 100u);
    EXPECT_EQ(winner, std::string(winner.size(), winner[0]));
    for (const std::string& other : seen) EXPECT_EQ(other, winner);
  }
}

// Steps are read while they are written. A writer that is stopped in the middle may leave a
// mixture.
TEST(ControlPageThreads, ReadStepsWhileTheyAreWritten) {
  ControlPage page = ControlPage::create(2);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int turn = 0; turn < 20'000; ++turn) {
      page.set_step(0, std::string(40, static_cast<char>('a' + turn % 26)));
      page.set_state(0, turn % 2 == 0 ? ControlPage::State::alive : ControlPage::State::left);
    }
    page.set_step(0, "done");
    stop = true;
  });
  while (!stop) {
    const std::string step = page.step(0);
    EXPECT_LE(step.size(), 40u);
    EXPECT_EQ(step.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << step;
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(page.step(0), "done");
}

// How ranks of one process have the page: all the same object, or, as processes, each its own.
class DoorbellThreads : public testing::TestWithParam<bool> {
 protected:
  explicit DoorbellThreads(int ranks = 4) {
    pages_.push_back(ControlPage::create(ranks));
    while (GetParam() && static_cast<int>(pages_.size()) < ranks) {
      pages_.push_back(ControlPage::open(Fd(::dup(pages_[0].fd())), ranks));
    }
  }
  ControlPage& page(int rank) { return pages_[GetParam() ? static_cast<std::size_t>(rank) : 0]; }
  // Whoever isn't woken sleeps on.
  template <typename Ready>
  void await(int rank, int awaited, const Ready& ready) {
    while (!ready()) {
      page(rank).sleep(rank, awaited, ready, Deadline::after(kSafetyNet), seconds(100));
    }
  }
  void wake(int rank, int from) {
    ControlPage::order_before_wake();
    page(from).wake(rank, from);
  }

 private:
  std::vector<ControlPage> pages_;
};

INSTANTIATE_TEST_SUITE_P(Pages, DoorbellThreads, testing::Bool(), [](const auto& test) {
  return test.param ? std::string("OfEach") : std::string("OfAll");
});

// A turn goes around: each sleeps until the one before it wakes it, with plain data behind that.
TEST_P(DoorbellThreads, PassATurnAround) {
  constexpr int kRanks = 4;
  constexpr std::uint32_t kTurns = 200;
  std::atomic<std::uint32_t> turn{0};
  std::uint32_t sum = 0;  // only who has the turn touches it
  std::vector<std::thread> threads;
  const auto start = Deadline::Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const int before = (rank + kRanks - 1) % kRanks;
      for (std::uint32_t mine = static_cast<std::uint32_t>(rank); mine < kTurns; mine += kRanks) {
        await(rank, mine % 8 < 4 ? before : ControlPage::kAnyRank,
              [&] { return turn.load(std::memory_order_acquire) == mine; });
        sum += mine;
        turn.store(mine + 1, std::memory_order_release);
        wake((rank + 1) % kRanks, rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kTurns * (kTurns - 1) / 2);
  EXPECT_LT(Deadline::Clock::now() - start, seconds(60)) << "a wake was missed";
}

// Several threads of rank 0 sleep, each in a group of its own, and each for another peer.
TEST_P(DoorbellThreads, WakeEachThreadOfARank) {
  constexpr int kTurns = 300;
  std::array<std::atomic<int>, 4> turns{};
  std::vector<std::thread> threads;
  const auto start = Deadline::Clock::now();
  const auto play = [&](int rank, int peer, std::atomic<int>& turn, int first) {
    for (int mine = first; mine < kTurns; mine += 2) {
      await(rank, peer, [&] { return turn.load(std::memory_order_acquire) == mine; });
      turn.store(mine + 1, std::memory_order_release);
      wake(peer, rank);
    }
  };
  for (int peer = 1; peer < 4; ++peer) {
    std::atomic<int>& turn = turns[static_cast<std::size_t>(peer)];
    threads.emplace_back([&, peer] { play(0, peer, turn, 0); });
    threads.emplace_back([&, peer] { play(peer, 0, turn, 1); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Deadline::Clock::now() - start, seconds(60)) << "a wake was missed";
}

// Beacons begin and end while others look at them.
TEST(LivenessThreads, AreWatchedWhileTheyBeginAndEnd) {
  ControlPage page = ControlPage::create(2);
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) EXPECT_FALSE(page.died(1));
  });
  for (int turn = 0; turn < 50; ++turn) const LivenessBeacon beacon(page, 1);
  stop = true;
  watcher.join();
}

}  // namespace
}  // namespace ranklink
