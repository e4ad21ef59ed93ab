#include <atomic>

#include "../base/expect_error.h"
#include "prepared_call.h"
#include "prepared_exchange.h"

namespace ranklink {
namespace {

using Kinds = RankThreads::Kinds;

constexpr std::size_t kLong = 1 << 20;  // larger than any outbox holds of it at once

struct Way {
  Kinds kinds;
  const Algorithm* algorithm;

  std::string name() const { return RankThreads::name_of(kinds) + std::string(algorithm->name); }
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const Kinds kinds :
       {RankThreads::all_mapped, RankThreads::all_streams, RankThreads::mixed}) {
    for (const Algorithm* algorithm : {&kExchangeGrants, &kExchangePull}) {
      if (can_run(*algorithm, kinds)) all.push_back({kinds, algorithm});
    }
  }
  return all;
}

class ExchangeTest : public testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  ExchangeTest() : ranks_(size(), way().kinds, 0xffff'fff0) {}
  const Way& way() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }

  void expect_right(std::unique_ptr<PreparedExchange> exchange) {
    PreparedCalls calls;
    calls.push_back(std::move(exchange));
    ranklink::expect_right(ranks_, calls);
  }
  std::unique_ptr<PreparedExchange> prepare(std::uint32_t seed = 1) {
    return std::make_unique<PreparedExchange>(size(), seed, *way().algorithm);
  }

  RankThreads ranks_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ExchangeTest,
                         testing::Combine(testing::ValuesIn(ways()), testing::Values(1, 2, 3, 5)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name() +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(ExchangeTest, CarriesMessagesOfAnySize) {
  constexpr std::size_t kPiece = 128 << 10;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, SegmentLayout::kInline, SegmentLayout::kInline + 1,
        std::size_t{4096}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 7}) {
    auto exchange = prepare();
    exchange->add(0, size() - 1, bytes);
    ASSERT_NO_FATAL_FAILURE(expect_right(std::move(exchange)));
  }
}

// Each sends first, to the next, and receives then: done one after the other, that would wait
// forever.
TEST_P(ExchangeTest, GoesAround) {
  for (const std::size_t bytes : {std::size_t{100}, kLong}) {
    auto exchange = prepare();
    for (int rank = 0; rank < size(); ++rank) exchange->add(rank, (rank + 1) % size(), bytes);
    for (int rank = 0; rank < size(); ++rank) {
      auto& row = exchange->row(rank);
      std::sort(row.begin(), row.end(), [](const Transfer& a, const Transfer& b) {
        return a.kind == Transfer::Kind::send && b.kind == Transfer::Kind::recv;
      });
    }
    ASSERT_NO_FATAL_FAILURE(expect_right(std::move(exchange)));
  }
}

// Each receives first.
TEST_P(ExchangeTest, GoesAroundBackwards) {
  auto exchange = prepare();
  for (int rank = 0; rank < size(); ++rank) exchange->add((rank + 1) % size(), rank, kLong);
  for (int rank = 0; rank < size(); ++rank) {
    std::reverse(exchange->row(rank).begin(), exchange->row(rank).end());
  }
  expect_right(std::move(exchange));
}

TEST_P(ExchangeTest, CarriesManyLongMessagesAtOnce) {
  auto exchange = prepare();
  for (int turn = 0; turn < 2; ++turn) {
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) exchange->add(from, to, kLong / 4 + 12'345);
    }
  }
  expect_right(std::move(exchange));
}

TEST_P(ExchangeTest, KeepsTheOrderBetweenTwoRanks) {
  auto exchange = prepare();
  for (const std::size_t bytes : {0, 8, 300'000, 16, 241, 0, 240, 500'000, 1}) {
    exchange->add(0, size() - 1, bytes);
  }
  for (int i = 0; i < 100; ++i) exchange->add(size() - 1, 0, static_cast<std::size_t>(i) * 7);
  expect_right(std::move(exchange));
}

TEST_P(ExchangeTest, CarriesAnyMessages) {
  PreparedCalls calls;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    auto exchange = prepare(seed);
    exchange->add_any(40, 200'000);
    calls.push_back(std::move(exchange));
  }
  ranklink::expect_right(ranks_, calls);
}

TEST_P(ExchangeTest, OfNothingWaitsForNobody) {
  const PreparedExchange nothing(size());
  nothing.run(ranks_.work(0));
}

class PairsTest : public testing::TestWithParam<Way> {
 protected:
  PreparedExchange prepare(int ranks) { return PreparedExchange(ranks, 1, *GetParam().algorithm); }
};

INSTANTIATE_TEST_SUITE_P(Ways, PairsTest, testing::ValuesIn(ways()),
                         [](const auto& test) { return test.param.name(); });

// Rank 1 takes what it is sent only when ranks 2 and 3 have got all of theirs, of which there is
// much more than an outbox holds: nothing for rank 1 may stand in their way.
TEST_P(PairsTest, ASlowReceiverHoldsUpNobodyElse) {
  RankThreads ranks(4, GetParam().kinds, 0xffff'fffc);
  PreparedExchange exchange = prepare(4);
  for (int turn = 0; turn < 4; ++turn) {
    for (int to = 1; to < 4; ++to) exchange.add(0, to, 4 * kLong);
    exchange.add(0, 1, 100);
  }
  std::atomic<int> done{0};
  ranks.run_well([&](Workspace& work) {
    const int rank = work.routes.rank();
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (rank == 1 && done < 2 && !deadline.passed()) std::this_thread::yield();
    if (rank == 1) {
      EXPECT_EQ(done, 2);
    }
    exchange.run(work);
    ++done;
  });
  EXPECT_EQ(exchange.verdict(), "");
}

// A short message is on its way when the sender has returned, though nobody receives it yet.
TEST_P(PairsTest, ShortMessagesAreSentAtOnce) {
  RankThreads ranks(2, GetParam().kinds, 0xffff'fffc);
  PreparedExchange first = prepare(2);
  PreparedExchange second = prepare(2);
  first.add(0, 1, SegmentLayout::kInline);
  second.add(0, 1, 7);
  first.run(ranks.work(0));
  second.run(ranks.work(0));
  first.run(ranks.work(1));
  second.run(ranks.work(1));
  EXPECT_EQ(first.verdict(), "");
  EXPECT_EQ(second.verdict(), "");
}

// Sends one after the other, whose receiver asks for all of them together.
TEST_P(PairsTest, SingleCallsMeetGroupedOnes) {
  constexpr std::size_t kMessages = 20;
  RankThreads ranks(2, GetParam().kinds, 0xffff'fffc);
  PreparedExchange all = prepare(2);
  for (std::size_t i = 0; i < kMessages; ++i) all.add(0, 1, i % 3 * 70'000 + i);
  ranks.run_well([&](Workspace& work) {
    if (work.routes.rank() == 1) return all.run(work);
    for (std::size_t i = 0; i < kMessages; ++i) {
      Call call = all.call(0);
      call.transfers += i;
      call.count = 1;
      do_call(work, *GetParam().algorithm, call);
    }
  });
  EXPECT_EQ(all.verdict(), "");
}

// What one side sends and the other doesn't expect so.
TEST_P(PairsTest, MessagesOfAnotherSizeAreRefused) {
  for (const auto& [sent, expected] :
       {std::pair<std::size_t, std::size_t>(8, 9), std::pair<std::size_t, std::size_t>(1000, 2000),
        std::pair<std::size_t, std::size_t>(8, 200'000)}) {
    RankThreads ranks(2, GetParam().kinds);
    PreparedExchange exchange = prepare(2);
    exchange.add(0, 1, sent);
    Bytes larger(expected);
    exchange.row(1)[0].data = larger.data();
    exchange.row(1)[0].bytes = expected;
    const auto thrown = ranks.run([&](Workspace& work) { exchange.run(work); });
    ASSERT_TRUE(thrown[1]);
    EXPECT_EQ(thrown[1]->code(), ErrorCode::call_mismatch) << thrown[1]->what();
  }
}

// A receiver that never comes.
TEST_P(PairsTest, ALongMessageEndsAtItsDeadline) {
  RankThreads ranks(2, GetParam().kinds);
  PreparedExchange exchange = prepare(2);
  exchange.add(0, 1, 100'000);
  EXPECT_NE(expect_error(ErrorCode::op_timeout,
                         [&] {
                           do_call(ranks.work(0), *GetParam().algorithm, exchange.call(0),
                                   Milliseconds(20));
                         })
                .find("rank 1"),
            std::string::npos);
}

}  // namespace
}  // namespace ranklink
