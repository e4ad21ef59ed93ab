#include "exchange/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "../rendezvous/refusals.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

Verdict yes() { return {.yes = true, .tried = true}; }
Verdict no(int rank, const std::string& cause) {
  return {
      .mechanism = "", .yes = false, .tried = true, .rank = rank, .cause = cause, .remedy = "r"};
}

// The ranks' side of the dialogue, with made-up verdicts.
class CoordinatorTest : public testing::Test {
 protected:
  Plan inspect(int size, const std::vector<std::pair<std::string, std::string>>& changes = {}) {
    size_ = size;
    Settings settings;
    for (const auto& [name, value] : changes) settings.set(name, value, Origin::environment);
    std::vector<Bytes> rows;
    for (int rank = 0; rank < size; ++rank) {
      rows.push_back(
          introduce(Facts{.hostname = "node-" + std::to_string(rank)}, settings, {}).encode());
    }
    const Bytes answer = coordinator_("inspect", rows);
    Reader reader(answer);
    EXPECT_EQ(split_rows(reader, size), rows);
    return whole_plan(reader);
  }
  Plan whole_plan(Reader& reader) const {
    const Plan plan = Plan::decode(reader, size_);
    reader.end();
    return plan;
  }
  // Each rank hands in what `verdict(from, to)` says of the pairs of the plan, as both ends see it.
  template <typename Verdicts>
  Plan verdicts(const Plan& plan, Verdicts verdict) {
    std::vector<Bytes> rows;
    for (int rank = 0; rank < size_; ++rank) {
      VerdictRow row;
      for (const int peer : plan.pairs.peers_of(rank)) {
        row.entries.push_back({peer, verdict(rank, peer), yes()});
      }
      rows.push_back(row.encode());
    }
    return take(rows);
  }
  Plan take(const std::vector<Bytes>& rows) {
    const Bytes answer = coordinator_("try/verdicts", rows);
    Reader reader(answer);
    return whole_plan(reader);
  }
  Bytes agree(const Digest& digest, std::optional<int> other = {}) {
    std::vector<Bytes> rows;
    for (int rank = 0; rank < size_; ++rank) {
      Writer row;
      Digest mine = digest;
      if (rank == other) mine[31] ^= std::byte{1};
      row.raw(mine);
      row.text("timeline " + std::to_string(rank));
      rows.push_back(row.take());
    }
    return coordinator_("agree", rows);
  }

  Coordinator coordinator_;
  int size_ = 0;
};

TEST_F(CoordinatorTest, LeadsToADecisionWithoutDetours) {
  const Plan plan = inspect(3);
  EXPECT_FALSE(plan.decided);
  EXPECT_EQ(plan.mechanism, "fd+socket");
  EXPECT_EQ(plan.pairs.peers_of(1), (std::vector<int>{0, 2}));
  const Plan end = verdicts(plan, [](int, int) { return yes(); });
  ASSERT_TRUE(end.decided);
  const Decision decision = Decision::decode(end.decision);
  EXPECT_EQ(decision.size, 3);
  ASSERT_EQ(decision.verdicts.size(), 1u);
  EXPECT_EQ(decision.verdicts[decision.route(2, 0)].mechanism(), "fd+socket");
  const Bytes commit = agree(decision.digest());
  Reader reader(commit);
  EXPECT_EQ(reader.get<std::uint32_t>(), 1u);
  for (const Bytes& row : split_rows(reader, 3)) EXPECT_GT(row.size(), decision.digest().size());
  EXPECT_TRUE(reader.empty());
}

TEST_F(CoordinatorTest, TriesTheNextMechanismOnPairsThatAreNotJoined) {
  Plan plan = inspect(3);
  plan = verdicts(plan,
                  [](int from, int to) { return from + to == 1 ? no(from, "no socket") : yes(); });
  EXPECT_FALSE(plan.decided);
  EXPECT_EQ(plan.mechanism, "fd+pidfd");
  EXPECT_EQ(plan.pairs.peers_of(0), std::vector<int>{1});
  EXPECT_TRUE(plan.pairs.peers_of(2).empty());
  plan = verdicts(plan, [](int from, int) { return from == 0 ? yes() : no(1, "EPERM"); });
  EXPECT_FALSE(plan.decided);
  EXPECT_EQ(plan.mechanism, "stream");
  plan = verdicts(plan, [](int, int) { return yes(); });
  ASSERT_TRUE(plan.decided);
  const Decision decision = Decision::decode(plan.decision);
  const auto route = [&](int from, int to) {
    return decision.verdicts[decision.route(from, to)].mechanism();
  };
  EXPECT_EQ(route(0, 2), "fd+socket");
  EXPECT_EQ(route(0, 1), "stream");  // by fd+pidfd only one of them reads the other
  EXPECT_EQ(route(1, 0), "stream");
  EXPECT_EQ(decision.verdicts[0].at(1, 0).cause, "no socket");
  EXPECT_EQ(decision.verdicts[1].at(1, 0).cause, "EPERM");
}

TEST_F(CoordinatorTest, TriesAllWhenItIsToldTo) {
  Plan plan = inspect(2, {{"RANKLINK_TRIALS", "all"}});
  for (const char* mechanism : {"fd+socket", "fd+pidfd", "stream"}) {
    ASSERT_FALSE(plan.decided);
    EXPECT_EQ(plan.mechanism, mechanism);
    EXPECT_EQ(plan.pairs.peers_of(0), std::vector<int>{1});
    plan = verdicts(plan, [](int, int) { return yes(); });
  }
  ASSERT_TRUE(plan.decided);
  EXPECT_EQ(Decision::decode(plan.decision).verdicts.size(), 3u);
}

TEST_F(CoordinatorTest, ObeysTheSetting) {
  EXPECT_EQ(inspect(2, {{"RANKLINK_MECHANISM", "none"}}).mechanism, "stream");
  const Plan plan = inspect(2, {{"RANKLINK_MECHANISM", "fd+pidfd"}});
  EXPECT_EQ(plan.mechanism, "fd+pidfd");
  EXPECT_THAT(expect_error(ErrorCode::mechanism_unavailable,
                           [&] { verdicts(plan, [](int, int) { return no(0, "EPERM"); }); }),
              HasSubstr("which was asked for"));
}

TEST_F(CoordinatorTest, DecidesForOneRankAtOnce) {
  const Plan plan = inspect(1);
  ASSERT_TRUE(plan.decided);
  EXPECT_NO_THROW(agree(Decision::decode(plan.decision).digest()));
}

// What the accessing rank saw counts, but the owner of the memory may know better.
TEST_F(CoordinatorTest, TakesTheOwnersNo) {
  const Plan plan = inspect(2);
  VerdictRow zero{{{1, yes(), yes()}}};
  VerdictRow one{{{0, yes(), no(1, "nothing arrived")}}};
  const Plan next = take({zero.encode(), one.encode()});
  ASSERT_FALSE(next.decided);
  VerdictRow ok{{{1, yes(), yes()}}};
  VerdictRow ok_too{{{0, yes(), yes()}}};
  const Plan end = take({ok.encode(), ok_too.encode()});
  ASSERT_TRUE(end.decided);
  const Decision decision = Decision::decode(end.decision);
  EXPECT_EQ(decision.verdicts[0].at(0, 1).cause, "nothing arrived");
  EXPECT_EQ(decision.verdicts[decision.route(0, 1)].mechanism(), "fd+pidfd");
  EXPECT_EQ(decision.verdicts[decision.route(1, 0)].mechanism(), "fd+socket");
}

TEST_F(CoordinatorTest, DoesNotLetTheOwnersYesCoverANo) {
  inspect(2);
  VerdictRow zero{{{1, no(0, "what is mapped is not the memory"), yes()}}};
  VerdictRow one{{{0, yes(), yes()}}};
  EXPECT_FALSE(take({zero.encode(), one.encode()}).decided);
}

TEST_F(CoordinatorTest, NamesWhoAcknowledgesAnotherDecision) {
  const Plan end = verdicts(inspect(3), [](int, int) { return yes(); });
  const Digest digest = Decision::decode(end.decision).digest();
  try {
    agree(digest, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::digest_mismatch);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.step(), "agree");
  }
  EXPECT_NO_THROW(agree(digest));
}

TEST_F(CoordinatorTest, CountsEpochs) {
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    const Plan end = verdicts(inspect(2), [](int, int) { return yes(); });
    const Bytes commit = agree(Decision::decode(end.decision).digest());
    Reader reader(commit);
    EXPECT_EQ(reader.get<std::uint32_t>(), epoch);
  }
}

TEST_F(CoordinatorTest, StopsWhereSettingsDisagree) {
  Settings other;
  other.set("RANKLINK_MECHANISM", "none", Origin::program);
  expect_error(ErrorCode::settings_disagree, [&] {
    coordinator_("inspect",
                 {introduce({}, Settings(), {}).encode(), introduce({}, other, {}).encode()});
  });
}

TEST_F(CoordinatorTest, GivesAllTheRowsOfOtherRounds) {
  const std::vector<Bytes> rows = {Bytes(3, std::byte{1}), Bytes(), Bytes(1, std::byte{2})};
  const Bytes all = coordinator_("try/offer", rows);
  Reader reader(all);
  EXPECT_EQ(split_rows(reader, 3), rows);
  EXPECT_TRUE(reader.empty());
}

TEST_F(CoordinatorTest, RefusesVerdictsThatNobodyAskedFor) {
  expect_error(ErrorCode::protocol_violation, [&] { take({Bytes(4)}); });
  inspect(2);
  expect_error(ErrorCode::protocol_violation, [&] { take({Bytes(4)}); });
  for (const int peer : {-1, 0, 2}) {
    const VerdictRow row{{{peer, yes(), yes()}}};
    expect_error(ErrorCode::protocol_violation, [&] {
      take({row.encode(), VerdictRow{}.encode()});
    });
  }
}

TEST(VerdictRow, ComesBackFromItsBytes) {
  const VerdictRow in{{{1, yes(), no(0, "x")}, {2, no(2, "y"), yes()}}};
  const VerdictRow out = VerdictRow::decode(in.encode());
  ASSERT_EQ(out.entries.size(), 2u);
  EXPECT_EQ(out.entries[0].peer, 1);
  EXPECT_TRUE(out.entries[0].to_peer.yes);
  EXPECT_TRUE(out.entries[0].to_peer.tried);
  EXPECT_EQ(out.entries[0].from_peer.cause, "x");
  EXPECT_EQ(out.entries[1].to_peer.rank, 2);
  EXPECT_TRUE(out.entries[1].from_peer.yes);
}

TEST(VerdictRow, IsTakenWholeOrNotAtAll) {
  const VerdictRow row{{{1, yes(), no(0, "x")}, {2, no(2, "y"), yes()}}};
  expect_whole_only(row.encode(), VerdictRow::decode);
}

TEST(Plan, IsTakenWholeOrNotAtAll) {
  PairSet pairs(4);
  pairs.add(1, 2);
  for (const Plan& plan :
       {Plan{false, "stream", pairs, {}}, Plan{true, {}, PairSet(4), Bytes(9)}}) {
    Writer w;
    plan.encode(w);
    expect_whole_only(w.bytes(), [](ByteView bytes) {
      Reader reader(bytes);
      const Plan out = Plan::decode(reader, 4);
      reader.end();
      return out;
    });
  }
}

}  // namespace
}  // namespace ranklink
