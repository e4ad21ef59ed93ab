// Groups of a group, and collectives of them, as a program does them.

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "../collective/prepared_call.h"
#include "../collective/prepared_exchange.h"
#include "group_threads.h"

namespace ranklink {
namespace {

using testing::ElementsAre;

using Settings = std::vector<std::pair<std::string, std::string>>;

class GroupsTest : public testing::TestWithParam<const char*> {
 protected:
  Settings settings() const {
    return {{"RANKLINK_MECHANISM", GetParam()}, {"RANKLINK_OP_TIMEOUT", "60s"}};
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, GroupsTest, testing::Values("auto", "none"),
                         [](const auto& test) { return std::string(test.param); });

std::vector<int> ranks_of(Group& group, int rank_in_job) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(group.size()));
  const std::int32_t mine = rank_in_job;
  group.all_gather(&mine, ranks.data(), 1, DataType::i32);
  return {ranks.begin(), ranks.end()};
}

TEST_P(GroupsTest, AreMadeByColorAndKey) {
  run_groups_well(5, settings(), [](Group& all) {
    const int me = all.rank();
    auto odd_or_even = all.split(me % 2);
    ASSERT_TRUE(odd_or_even);
    EXPECT_EQ(odd_or_even->size(), me % 2 == 0 ? 3 : 2);
    EXPECT_EQ(ranks_of(*odd_or_even, me),
              me % 2 == 0 ? std::vector<int>({0, 2, 4}) : std::vector<int>({1, 3}));
    auto reversed = all.split(7, -me);
    ASSERT_TRUE(reversed);
    EXPECT_EQ(reversed->rank(), 4 - me);
    EXPECT_THAT(ranks_of(*reversed, me), ElementsAre(4, 3, 2, 1, 0));
    auto same_key = all.split(0, me / 2 == 1 ? 0 : 1);  // then by rank here
    EXPECT_THAT(ranks_of(*same_key, me), ElementsAre(2, 3, 0, 1, 4));
    auto some = all.split(me < 2 ? 1 : -1);
    EXPECT_EQ(some.has_value(), me < 2);
    if (some) {
      EXPECT_THAT(ranks_of(*some, me), ElementsAre(0, 1));
      auto alone = some->split(me);  // of a group of a group
      ASSERT_TRUE(alone);
      EXPECT_EQ(alone->size(), 1);
      EXPECT_THAT(ranks_of(*alone, me), ElementsAre(me));
    }
    all.barrier();
  });
}

// One thread in each of two groups of the same ranks.
TEST_P(GroupsTest, AreUsedByThreadsAtOnce) {
  run_groups_well(3, settings(), [](Group& all) {
    auto other = all.split(0, -all.rank());
    const auto sum_often = [](Group& group) {
      std::vector<std::int32_t> data(5000);
      for (int turn = 0; turn < 50; ++turn) {
        std::fill(data.begin(), data.end(), group.rank() + turn);
        group.all_reduce(data);
        ASSERT_EQ(data[static_cast<std::size_t>(turn)], 3 + 3 * turn);
      }
    };
    std::thread thread([&] { sum_often(*other); });
    sum_often(all);
    thread.join();
  });
}

// Any calls of overlapping groups, half of them going on by themselves.
TEST_P(GroupsTest, DoAnySequence) {
  constexpr int kRanks = 4;
  struct Step {
    std::size_t group;
    Call (*call)(const Prepared&, int rank);
    std::unique_ptr<Prepared> prepared;
    bool started;
  };
  constexpr int kSizes[] = {4, 4, 2, 3};
  std::mt19937 random(5);
  std::vector<Step> plan;
  while (plan.size() < 120) {
    const std::size_t group = random() % std::size(kSizes);
    const int size = kSizes[group];
    const auto* algorithm = algorithm_table()[random() % algorithm_table().size()];
    if (algorithm->needs == Needs::shared_buffer) continue;
    Step step{group, nullptr, nullptr, random() % 2 == 0};
    const std::size_t most = random() % 8 == 0 ? 50'000 : 500;
    if (algorithm->collective == Collective::exchange) {
      auto exchange = std::make_unique<PreparedExchange>(size, random());
      exchange->add_any(random() % 20, most);
      step.call = [](const Prepared& it, int rank) {
        return static_cast<const PreparedExchange&>(it).call(rank);
      };
      step.prepared = std::move(exchange);
    } else {
      const CallCase how{.algorithm = algorithm,
                         .count = random() % (most + 1),
                         .type = kAllTypes[random() % std::size(kAllTypes)],
                         .op = kAllOps[random() % std::size(kAllOps)],
                         .root = static_cast<int>(random() % static_cast<unsigned>(size)),
                         .in_place = random() % 2 == 0,
                         .offset = random() % 64};
      step.call = [](const Prepared& it, int rank) {
        return static_cast<const PreparedCall&>(it).call(rank);
      };
      step.prepared = std::make_unique<PreparedCall>(how, size, random());
    }
    plan.push_back(std::move(step));
  }
  run_groups_well(kRanks, settings(), [&](Group& all) {
    const int me = all.rank();
    std::vector<std::optional<Group>> parts;
    parts.push_back(all.split(0, -me));
    parts.push_back(all.split(me < 2 ? 0 : -1));
    parts.push_back(all.split(me > 0 ? 0 : -1));
    std::vector<Work> works;
    for (const Step& step : plan) {
      if (step.group > 0 && !parts[step.group - 1]) continue;
      Group& group = step.group == 0 ? all : *parts[step.group - 1];
      const Call call = step.call(*step.prepared, group.rank());
      if (step.started) {
        works.push_back(group.start(call));
      } else {
        group.run(call);
      }
    }
    for (const Work& work : works) work.wait();
    all.barrier();
  });
  for (const Step& step : plan) ASSERT_EQ(step.prepared->verdict(), "");
}

// Collectives on a shared buffer, one right after the other: whoever returns writes anew at once,
// so nobody may still be reading.
TEST_P(GroupsTest, WorkOnSharedBuffers) {
  run_groups_well(3, settings(), [](Group& group) {
    constexpr std::size_t kCount = 20'000;
    constexpr std::size_t kOffset = 4;
    const int me = group.rank();
    SharedBuffer buffer = group.make_shared_buffer(kOffset + 3 * kCount * sizeof(std::int32_t));
    auto* data = reinterpret_cast<std::int32_t*>(buffer.local().data() + kOffset);
    int turn = 0;
    const auto x = [&](std::size_t i) { return static_cast<int>(i % 1000) + turn; };
    const auto fill = [&] {
      ++turn;
      for (std::size_t i = 0; i < 3 * kCount; ++i) data[i] = (me + 1) * x(i);
    };
    const auto expect = [&](std::size_t begin, std::size_t end, const auto& value) {
      std::size_t wrong = 0;
      for (std::size_t i = begin; i < end; ++i) wrong += data[i] != value(i) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "in call " << turn;
    };
    const std::size_t mine = static_cast<std::size_t>(me) * kCount;
    for (int round = 0; round < 20; ++round) {
      fill();
      group.all_reduce(buffer, kCount, DataType::i32, ReduceOp::sum, kOffset);
      expect(0, kCount, [&](std::size_t i) { return 6 * x(i); });
      fill();
      group.reduce_scatter(buffer, kCount, DataType::i32, ReduceOp::max, kOffset);
      expect(mine, mine + kCount, [&](std::size_t i) { return 3 * x(i); });
      fill();
      group.all_gather(buffer, kCount, DataType::i32, kOffset);
      expect(0, 3 * kCount, [&](std::size_t i) { return static_cast<int>(i / kCount + 1) * x(i); });
      fill();
      group.broadcast(buffer, kCount, DataType::i32, 2, kOffset);
      expect(0, kCount, [&](std::size_t i) { return 3 * x(i); });
      fill();
      group.all_to_all(buffer, kCount, DataType::i32, kOffset);
      expect(0, 3 * kCount, [&](std::size_t i) {
        return static_cast<int>(i / kCount + 1) * x(i % kCount + mine);
      });
    }
    group.barrier();
  });
}

TEST_P(GroupsTest, ShareMemoryThatIsThere) {
  run_groups_well(2, settings(), [](Group& group) {
    constexpr std::size_t kBytes = 64 << 10;
    const int me = group.rank();
    void* place = std::aligned_alloc(4096, kBytes);
    auto* data = static_cast<std::int32_t*>(place);
    constexpr std::size_t kCount = kBytes / sizeof(std::int32_t);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = me * 100 + static_cast<int>(i % 50);
    {
      SharedBuffer buffer = group.register_memory({static_cast<std::byte*>(place), kBytes});
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(data[i], me * 100 + static_cast<int>(i % 50));
      }
      group.all_reduce(buffer, kCount, DataType::i32);
    }
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 100 + 2 * static_cast<int>(i % 50));
    group.barrier();
    std::free(place);
  });
}

}  // namespace
}  // namespace ranklink
