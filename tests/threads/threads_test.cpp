#include <gtest/gtest.h>

#include <cstring>

#include "../unit/collective/rank_threads.h"

namespace ranklink {
namespace {

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

}  // namespace
}  // namespace ranklink
