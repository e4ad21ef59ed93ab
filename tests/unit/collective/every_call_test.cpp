// Every collective, by every algorithm, against what it must give.

#include <set>

#include "prepared_call.h"

namespace ranklink {
namespace {

using Kinds = RankThreads::Kinds;

std::vector<const Algorithm*> algorithms_of(Collective collective, Kinds kinds) {
  std::vector<const Algorithm*> algorithms;
  for (const Algorithm* algorithm : algorithm_table()) {
    if (algorithm->collective == collective && can_run(*algorithm, kinds))
      algorithms.push_back(algorithm);
  }
  return algorithms;
}

class EveryCallTest : public testing::TestWithParam<std::tuple<Kinds, int, Collective>> {
 protected:
  EveryCallTest() : ranks_(size(), kinds(), 0xffff'fff0) {}
  Kinds kinds() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  Collective collective() const { return std::get<2>(GetParam()); }

  void expect_all_right(const std::vector<CallCase>& cases) {
    ASSERT_NO_FATAL_FAILURE(expect_right(ranks_, cases));
  }
  // As algorithms cut what they put in `messages` pieces at a time; f32.
  std::size_t piece(std::size_t messages) {
    const std::size_t most = ranks_.routes(0).max_message() / std::max<std::size_t>(1, messages);
    return std::min<std::size_t>(128 << 10, most) / 64 * 64 / sizeof(float);
  }
  // Counts of f32 at which something changes: what fits a slot, a piece, a block of pieces, what
  // an algorithm is taken for.
  std::set<std::size_t> edges() {
    const auto n = static_cast<std::size_t>(size());
    std::set<std::size_t> all = {0, 1, n, SegmentLayout::kInline / sizeof(float)};
    for (const std::size_t messages : {std::size_t{1}, n - 1, n}) all.insert(piece(messages));
    if (collective() == Collective::all_reduce) all.insert(piece(n) * n);
    for (const Tuning& row : tuning_table()) {
      // What lies between megabytes does so by the pieces that are tried anyway.
      if (row.collective != collective() || row.bytes > 256 << 10) continue;
      all.insert(row.bytes / sizeof(float));
    }
    std::set<std::size_t> with_neighbours;
    for (const std::size_t count : all) {
      if (count > 0) with_neighbours.insert(count - 1);
      with_neighbours.insert(count);
      with_neighbours.insert(count + 1);
    }
    return with_neighbours;
  }

  RankThreads ranks_;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryCallTest,
    testing::Combine(
        testing::Values(RankThreads::all_mapped, RankThreads::all_streams, RankThreads::mixed),
        testing::Values(1, 2, 3, 5, 8),
        testing::Values(Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                        Collective::broadcast, Collective::reduce, Collective::gather,
                        Collective::scatter, Collective::all_to_all, Collective::all_to_all_v)),
    [](const auto& test) {
      return RankThreads::name_of(std::get<0>(test.param)) +
             std::to_string(std::get<1>(test.param)) + "_" +
             std::string(to_string(std::get<2>(test.param)));
    });

TEST_P(EveryCallTest, OfEveryTypeAndOp) {
  constexpr std::size_t kCounts[] = {1, 0, 3, 7, 16, 33, 61, 100, 130};
  std::vector<CallCase> cases;
  std::mt19937 random(static_cast<std::uint32_t>(size()));
  for (const Algorithm* algorithm : algorithms_of(collective(), kinds())) {
    for (const DataType type : kAllTypes) {
      for (const ReduceOp op : kAllOps) {
        if (!reduces(collective()) && op != ReduceOp::sum) continue;
        for (const bool in_place : {false, true}) {
          cases.push_back({.algorithm = algorithm,
                           .count = kCounts[random() % std::size(kCounts)],
                           .type = type,
                           .op = op,
                           .root = static_cast<int>(random() % static_cast<unsigned>(size())),
                           .in_place = in_place,
                           .offset = random() % 3 == 0 ? 0 : random() % 64});
        }
      }
    }
  }
  expect_all_right(cases);
}

TEST_P(EveryCallTest, AroundEveryEdge) {
  std::vector<CallCase> cases;
  std::mt19937 random(static_cast<std::uint32_t>(size()) + 100);
  for (const Algorithm* algorithm : algorithms_of(collective(), kinds())) {
    for (const std::size_t count : edges()) {
      cases.push_back({.algorithm = algorithm,
                       .count = count,
                       .root = static_cast<int>(random() % static_cast<unsigned>(size())),
                       .in_place = random() % 2 == 0,
                       .offset = random() % 2 * 4});
    }
  }
  expect_all_right(cases);
}

// Several pieces, and several blocks of pieces, of elements that lines don't hold evenly.
TEST_P(EveryCallTest, OfManyPieces) {
  const auto n = static_cast<std::size_t>(size());
  const std::size_t most = collective() == Collective::all_reduce ? piece(n) * n : piece(n - 1);
  std::vector<CallCase> cases;
  for (const Algorithm* algorithm : algorithms_of(collective(), kinds())) {
    cases.push_back({.algorithm = algorithm, .count = 3 * most + 5, .root = size() - 1});
    cases.push_back({.algorithm = algorithm,
                     .count = 8 * most + 3,
                     .type = DataType::i8,
                     .op = ReduceOp::max,
                     .in_place = true,
                     .offset = 1});
  }
  expect_all_right(cases);
}

class LargeCallTest : public testing::TestWithParam<Collective> {};

INSTANTIATE_TEST_SUITE_P(Collectives, LargeCallTest,
                         testing::Values(Collective::all_reduce, Collective::all_gather,
                                         Collective::reduce_scatter, Collective::broadcast,
                                         Collective::reduce, Collective::gather,
                                         Collective::scatter, Collective::all_to_all,
                                         Collective::all_to_all_v),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Results that are written past the caches.
TEST_P(LargeCallTest, IsRight) {
  RankThreads ranks(2, RankThreads::all_mapped, 0xffff'ffe0);
  std::vector<CallCase> cases;
  for (const Algorithm* algorithm : algorithms_of(GetParam(), RankThreads::all_mapped)) {
    for (const std::size_t offset : {4, 3}) {
      cases.push_back({.algorithm = algorithm,
                       .count = (4 << 20) / sizeof(float) + 5,
                       .root = 1,
                       .in_place = offset == 4,
                       .offset = offset});
    }
  }
  expect_right(ranks, cases);
}

}  // namespace
}  // namespace ranklink
