#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../unit/collective/rank_threads.h"

namespace ranklink {
namespace {

using std::chrono::seconds;

constexpr Milliseconds kSafetyNet{100'000};

class ThreadsTest : public testing::TestWithParam<std::tuple<RankThreads::Kinds, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  RankThreads::Kinds kinds() const { return std::get<0>(GetParam()); }
};

std::string name_of_case(const testing::TestParamInfo<std::tuple<RankThreads::Kinds, int>>& info) {
  return RankThreads::name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, ThreadsTest,
                         testing::Combine(testing::Values(RankThreads::all_mapped,
                                                          RankThreads::all_streams,
                                                          RankThreads::mixed),
                                          testing::Values(2, 3, 8)),
                         name_of_case);

// What a group does all its life: sums of all sizes, barriers, and its step on the page.
TEST_P(ThreadsTest, WorkTogether) {
  RankThreads ranks(size(), kinds(), 0xffff'fffa);
  ranks.run_well([&](Workspace& work) {
    const int me = work.routes.rank();
    Operation operation{.collective = Collective::all_reduce};
    // In a slot, in the outbox, by two phases, in several blocks.
    for (const std::size_t count : {1, 9, 1000, 20'000, 0, 64, 150'000}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = sample_value(me, i);
      ++operation.sequence;
      ranks.page().begin_operation(me, operation);
      all_reduce_sum(work, data, kSafetyNet);
      ranks.page().end_operation(me, operation);
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = sample_sum(size(), i);
        ASSERT_EQ(std::memcmp(&data[i], &expected, sizeof expected), 0) << i << " of " << count;
      }
      barrier(work);
      for (int peer = 0; peer < size(); ++peer) {
        EXPECT_NE(ranks.page().step(peer).find("all_reduce"), std::string::npos);
      }
    }
  });
}

// A barrier orders what is written before it, by whomever, before what is read after it.
TEST_P(ThreadsTest, SeeAllThatWasDoneBeforeABarrier) {
  for (const Algorithm* algorithm : {&kBarrierFlat, &kBarrierDissemination}) {
    RankThreads ranks(size(), kinds(), 0xffff'fff0);
    std::vector<int> plain(static_cast<std::size_t>(size()) * 16);
    ranks.run_well([&](Workspace& work) {
      const Call call{.collective = Collective::barrier};
      for (int turn = 1; turn <= 50; ++turn) {
        plain[static_cast<std::size_t>(work.routes.rank()) * 16] = turn;
        do_call(work, *algorithm, call, kSafetyNet);
        for (std::size_t rank = 0; rank < plain.size(); rank += 16) ASSERT_EQ(plain[rank], turn);
        do_call(work, *algorithm, call, kSafetyNet);
      }
    });
  }
}

// Each rank but one waits when that one fails: all get its reason.
TEST_P(ThreadsTest, AreReleasedByAFailure) {
  for (int turn = 0; turn < 10; ++turn) {
    RankThreads ranks(size(), kinds());
    const auto thrown = ranks.run([&](Workspace& work) {
      if (work.routes.rank() == turn % size()) {
        throw Error(
            {.code = ErrorCode::rank_failed, .rank = work.routes.rank(), .cause = "out of luck"});
      }
      std::vector<float> data(100);
      all_reduce_sum(work, data, kSafetyNet);
    });
    for (const auto& error : thrown) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->cause(), "out of luck");
      EXPECT_EQ(error->rank(), turn % size());
    }
  }
}

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

// A turn goes around: each sleeps until the one before it wakes it, with plain data behind that.
TEST(DoorbellThreads, PassATurnAround) {
  constexpr int kRanks = 4;
  constexpr std::uint32_t kTurns = 200;
  ControlPage page = ControlPage::create(kRanks);
  std::atomic<std::uint32_t> turn{0};
  std::uint32_t sum = 0;  // only who has the turn touches it
  std::vector<std::thread> threads;
  const auto start = Deadline::Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const int before = (rank + kRanks - 1) % kRanks;
      for (std::uint32_t mine = static_cast<std::uint32_t>(rank); mine < kTurns; mine += kRanks) {
        const auto is_mine = [&] { return turn.load(std::memory_order_acquire) == mine; };
        while (!is_mine()) {
          page.sleep(rank, before, is_mine, Deadline::after(kSafetyNet), seconds(100));
        }
        sum += mine;
        turn.store(mine + 1, std::memory_order_release);
        ControlPage::order_before_wake();
        page.wake((rank + 1) % kRanks, rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kTurns * (kTurns - 1) / 2);
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
