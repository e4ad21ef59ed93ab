#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "rank_threads.h"

namespace ranklink {
namespace {

using Kinds = RankThreads::Kinds;

class CollectiveTest : public testing::TestWithParam<std::tuple<Kinds, int>> {
 protected:
  Kinds kinds() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }

  // Sums `count` samples and compares each with the sum in rank order, to the last bit.
  static void expect_sum(Workspace& work, std::size_t count) {
    const Routes& routes = work.routes;
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = sample_value(routes.rank(), i);
    all_reduce_sum(work, data);
    for (std::size_t i = 0; i < count; ++i) {
      const float expected = sample_sum(routes.size(), i);
      ASSERT_EQ(std::memcmp(&data[i], &expected, sizeof expected), 0)
          << "rank " << routes.rank() << " of " << routes.size() << ", " << i << " of " << count
          << ": " << data[i] << " instead of " << expected;
    }
  }
};

std::string name_of_case(const testing::TestParamInfo<std::tuple<Kinds, int>>& info) {
  return RankThreads::name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CollectiveTest,
                         testing::Combine(testing::Values(RankThreads::all_mapped,
                                                          RankThreads::all_streams,
                                                          RankThreads::mixed),
                                          testing::Values(1, 2, 3, 5, 8)),
                         name_of_case);

TEST_P(CollectiveTest, SumsAgainAndAgain) {
  RankThreads ranks(size(), kinds());
  ranks.run_well([&](Workspace& work) {
    for (std::size_t turn = 0; turn < 40; ++turn) {
      ASSERT_NO_FATAL_FAILURE(expect_sum(work, turn % 17));
    }
  });
}

// Special values reach all ranks, and don't touch their neighbours.
TEST_P(CollectiveTest, SumsSpecialValues) {
  RankThreads ranks(size(), kinds());
  ranks.run_well([&](Workspace& work) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::array<float, 5> data = {1, infinity, std::numeric_limits<float>::quiet_NaN(), -0.0f,
                                 std::numeric_limits<float>::denorm_min()};
    all_reduce_sum(work, data);
    const auto n = static_cast<float>(size());
    EXPECT_EQ(data[0], n);
    EXPECT_EQ(data[1], infinity);
    EXPECT_TRUE(std::isnan(data[2]));
    EXPECT_TRUE(data[3] == 0 && std::signbit(data[3]));
    EXPECT_EQ(data[4], n * std::numeric_limits<float>::denorm_min());
  });
}

// However it is done, and whenever: the bits are the same.
TEST_P(CollectiveTest, SumsToTheSameBitsByEveryAlgorithm) {
  const auto rank_sum = [&](const Algorithm& algorithm, std::size_t count) {
    RankThreads ranks(size(), kinds());
    std::vector<std::vector<float>> data(static_cast<std::size_t>(size()));
    ranks.run_well([&](Workspace& work) {
      const int rank = work.routes.rank();
      auto& mine = data[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < count; ++i) mine.push_back(sample_value(rank, i));
      do_call(
          work, algorithm,
          {Collective::all_reduce, mine.data(), mine.data(), count, DataType::f32, ReduceOp::avg});
    });
    for (const auto& other : data) EXPECT_EQ(other, data[0]);
    return data[0];
  };
  for (const std::size_t count : {5, 1000, 70'000}) {
    const auto expected = rank_sum(kAllReduceFlat, count);
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(rank_sum(kAllReduceTwoPhase, count), expected);
      EXPECT_EQ(rank_sum(kAllReduceFlat, count), expected);
    }
  }
}

TEST_P(CollectiveTest, CountsOnBeyondTheLargestNumber) {
  RankThreads ranks(size(), kinds(), 0xffff'fff0);
  ranks.run_well([&](Workspace& work) {
    for (std::size_t turn = 0; turn < 20; ++turn) {
      ASSERT_NO_FATAL_FAILURE(expect_sum(work, 9));
      barrier(work);
    }
  });
}

TEST_P(CollectiveTest, BarrierWaitsForAll) {
  RankThreads ranks(size(), kinds());
  std::vector<std::atomic<int>> entered(60);
  ranks.run_well([&](Workspace& work) {
    for (auto& count : entered) {
      ++count;
      barrier(work);
      ASSERT_EQ(count, size());
    }
  });
}

TEST_P(CollectiveTest, MixesWithOthers) {
  RankThreads ranks(size(), kinds());
  std::vector<std::atomic<int>> entered(20);
  ranks.run_well([&](Workspace& work) {
    for (std::size_t turn = 0; turn < entered.size(); ++turn) {
      ASSERT_NO_FATAL_FAILURE(expect_sum(work, turn));
      ++entered[turn];
      barrier(work);
      if (turn % 3 == 1) barrier(work);
      ASSERT_EQ(entered[turn], size());
    }
  });
}

TEST_P(CollectiveTest, EndsAtItsDeadlineNamingWhoIsMissing) {
  if (size() == 1) GTEST_SKIP() << "one rank waits for nobody";
  RankThreads ranks(size(), kinds());
  const auto thrown = ranks.run([&](Workspace& work) {
    if (work.routes.rank() == 1) return;
    std::array<float, 3> data{};
    all_reduce_sum(work, data, Milliseconds(work.routes.rank() == 0 ? 20 : 20'000));
  });
  for (int rank = 0; rank < size(); ++rank) {
    const auto& error = thrown[static_cast<std::size_t>(rank)];
    ASSERT_EQ(error.has_value(), rank != 1);
    if (!error) continue;
    EXPECT_EQ(error->code(), ErrorCode::op_timeout) << error->what();
    EXPECT_EQ(error->rank(), 1) << error->what();
  }
}

}  // namespace
}  // namespace ranklink
