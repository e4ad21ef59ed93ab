// Any calls in any order, in groups that overlap, some of them going on by themselves.

#include "../unit/collective/prepared_call.h"
#include "../unit/collective/prepared_exchange.h"
#include "group/worker.h"

namespace ranklink {
namespace {

using Kinds = RankThreads::Kinds;

// What all ranks do, in one order: so no rank waits in one group for what another does only later.
struct Step {
  std::size_t group;
  std::unique_ptr<Prepared> call;
  bool started;
  bool awaited;  // right then
};

class Groups {
 public:
  explicit Groups(Kinds kinds) {
    const auto page = std::make_shared<ControlPage>(ControlPage::create(kRanks));
    std::uint32_t sequence = 0xffff'ffe0;
    for (const auto& members : kMembers) {
      groups_.push_back(std::make_unique<RankThreads>(page, members, kinds, sequence += 7));
    }
  }

  std::vector<Step> plan(Kinds kinds, std::uint32_t seed, std::size_t steps) {
    std::mt19937 random(seed);
    std::vector<Step> plan;
    while (plan.size() < steps) {
      const std::size_t group = random() % groups_.size();
      const int size = groups_[group]->size();
      const auto table = algorithm_table();
      const Algorithm* algorithm = table[random() % table.size()];
      if (!can_run(*algorithm, kinds)) continue;
      const std::size_t most = random() % 8 == 0 ? 40'000 : 300;
      std::unique_ptr<Prepared> call;
      if (algorithm->collective == Collective::exchange) {
        auto exchange = std::make_unique<PreparedExchange>(size, random(), *algorithm);
        exchange->add_any(random() % 20, most * 4);
        call = std::move(exchange);
      } else {
        const CallCase how{.algorithm = algorithm,
                           .count = random() % (most + 1),
                           .type = kAllTypes[random() % std::size(kAllTypes)],
                           .op = kAllOps[random() % std::size(kAllOps)],
                           .root = static_cast<int>(random() % static_cast<unsigned>(size)),
                           .in_place = random() % 2 == 0,
                           .offset = random() % 64};
        call = std::make_unique<PreparedCall>(how, size, random());
      }
      const bool started = random() % 2 == 0;
      plan.push_back({group, std::move(call), started, started && random() % 4 == 0});
    }
    return plan;
  }

  // All steps that concern this rank.
  void play(int rank, const std::vector<Step>& plan) {
    const auto mark = std::make_shared<const ForkMark>();
    std::vector<std::unique_ptr<Worker>> workers;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      workers.push_back(std::make_unique<Worker>(mark));
    std::vector<Work> works;
    for (const Step& step : plan) {
      const int me = member(step.group, rank);
      if (me < 0) continue;
      Workspace& work = groups_[step.group]->work(me);
      Worker& worker = *workers[step.group];
      if (step.started) {
        works.emplace_back(worker.start([&step, &work] { step.call->run(work); }));
        if (step.awaited) works.back().wait();
      } else {
        worker.wait_until_idle();
        step.call->run(work);
      }
    }
    for (const Work& work : works) work.wait();
  }

  static constexpr int kRanks = 5;

 private:
  static int member(std::size_t group, int rank) {
    const auto& members = kMembers[group];
    const auto found = std::find(members.begin(), members.end(), rank);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }

  static inline const std::vector<std::vector<int>> kMembers = {
      {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {0, 2, 4}, {3, 1}, {1, 4, 2}};
  std::vector<std::unique_ptr<RankThreads>> groups_;
};

class SequencesTest : public testing::TestWithParam<std::tuple<Kinds, std::uint32_t>> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SequencesTest,
                         testing::Combine(testing::Values(RankThreads::all_mapped,
                                                          RankThreads::all_streams,
                                                          RankThreads::mixed),
                                          testing::Values(1, 2, 3, 4, 5)),
                         [](const auto& test) {
                           return RankThreads::name_of(std::get<0>(test.param)) +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(SequencesTest, GiveWhatEachCallGivesAlone) {
  const auto [kinds, seed] = GetParam();
  Groups groups(kinds);
  const std::vector<Step> plan = groups.plan(kinds, seed, 300);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < Groups::kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        groups.play(rank, plan);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    ASSERT_EQ(plan[i].call->verdict(), "") << "step " << i << " in group " << plan[i].group;
  }
}

}  // namespace
}  // namespace ranklink
