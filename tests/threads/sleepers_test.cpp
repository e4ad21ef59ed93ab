// Ranks that wait for long fall asleep: who does what they wait for wakes them.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "../unit/collective/rank_threads.h"

namespace ranklink {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kSafetyNet{100'000};
constexpr std::uint32_t kTag = 0x77;

// What rank 1 waits for, and what rank 0 does then.
struct Matter {
  const char* name;
  void (*prepare)(Routes& one);
  void (*await)(Routes& one);
  void (*act)(Routes& zero);
};

void put_number(Routes& routes, int to) {
  const std::uint32_t number = 5;
  routes.put(to, {reinterpret_cast<const std::byte*>(&number), sizeof number});
}

void nothing(Routes&) {}

void take_numbers(Routes& routes, int from, int count) {
  for (int i = 0; i < count; ++i) {
    routes.wait(from, 4);
    routes.release(from);
  }
}

constexpr Matter kMatters[] = {
    {"Message", nothing, [](Routes& one) { take_numbers(one, 0, 1); },
     [](Routes& zero) { put_number(zero, 1); }},
    {"Room",
     [](Routes& one) {
       for (std::uint32_t i = 0; i < SegmentLayout::kSlots; ++i) put_number(one, 0);
     },
     [](Routes& one) { put_number(one, 0); },
     [](Routes& zero) { take_numbers(zero, 1, SegmentLayout::kSlots); }},
    {"Space",
     [](Routes& one) {
       for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
         std::byte* place = one.reserve(one.max_message());
         std::fill(place, place + one.max_message(), std::byte{1});
         one.put(0, {place, one.max_message()});
       }
     },
     [](Routes& one) { one.reserve(64); },
     [](Routes& zero) {
       for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
         zero.wait(1, zero.max_message());
         zero.release(1);
       }
     }},
    {"Grant", nothing,
     [](Routes& one) {
       one.wait_for_any(0, [&] { return one.granted(0); });
       one.use_grant(0);
     },
     [](Routes& zero) { zero.grant(1); }},
};

class SleepersTest : public testing::TestWithParam<Matter> {};

INSTANTIATE_TEST_SUITE_P(Matters, SleepersTest, testing::ValuesIn(kMatters),
                         [](const auto& test) { return std::string(test.param.name); });

// Asleep for a while, a rank sleeps in slices of many milliseconds: if it isn't woken, that shows.
TEST_P(SleepersTest, AreWoken) {
  constexpr int kTurns = 15;
  const Matter& matter = GetParam();
  std::vector<Clock::duration> late;
  for (int turn = 0; turn < kTurns; ++turn) {
    RankThreads ranks(2, RankThreads::all_mapped, 0xffff'fff8);
    std::atomic<Clock::time_point> acted{Clock::time_point()};
    ranks.run_well([&](Routes& routes) {
      routes.begin(kTag, kSafetyNet);
      if (routes.rank() == 1) {
        matter.prepare(routes);
        matter.await(routes);
        late.push_back(Clock::now() - acted.load());
      } else {
        std::this_thread::sleep_for(Milliseconds(40));
        acted = Clock::now();
        matter.act(routes);
      }
      routes.end();
    });
  }
  std::sort(late.begin(), late.end());
  EXPECT_LT(late[kTurns / 2], Milliseconds(8)) << "not woken, or by chance";
}

// Ranks that are slow in turn, so that all others sleep: nobody sleeps through its call.
TEST(Sleepers, WakeEachOtherInCollectives) {
  constexpr int kRanks = 4;
  constexpr std::size_t kTurns = 40;
  RankThreads ranks(kRanks, RankThreads::all_mapped, 0xffff'fff0);
  ranks.run_well([&](Workspace& work) {
    const auto rank = static_cast<std::size_t>(work.routes.rank());
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      if (turn % kRanks == rank) std::this_thread::sleep_for(Milliseconds(5));
      // In slots, in the outbox, by two phases.
      std::vector<float> data(std::array<std::size_t, 3>{5, 1500, 30'000}[turn % 3], 1);
      all_reduce_sum(work, data);
      ASSERT_EQ(data.back(), kRanks);
      if (turn % 2 == 0) barrier(work);
    }
  });
}

}  // namespace
}  // namespace ranklink
