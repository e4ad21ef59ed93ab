#include "collective/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "../base/expect_error.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Collective kSharedForms[] = {Collective::all_reduce, Collective::all_gather,
                                       Collective::reduce_scatter, Collective::broadcast,
                                       Collective::all_to_all};
constexpr std::size_t kSizes[] = {0,    1,        8,       240,     2048,    2049,
                                  4096, 32 << 10, 1 << 20, 1 << 30, 1 << 22, ~std::size_t{0}};

// Nobody may be left without an algorithm.
TEST(Choice, KnowsEveryCollectiveAtEverySize) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 16, 17, 64, 1000, 65'536}) {
    const Choice choice(ranks, false, Forced{});
    for (const std::size_t bytes : kSizes) {
      for (int i = 0; i < static_cast<int>(Collective::split); ++i) {
        const auto collective = static_cast<Collective>(i);
        const Algorithm& algorithm = choice.of(collective, bytes, false);
        EXPECT_EQ(algorithm.collective, collective);
        EXPECT_EQ(algorithm.needs, Needs::messages) << to_string(collective);
        EXPECT_NE(algorithm.run, nullptr);
      }
      for (const Collective collective : kSharedForms) {
        EXPECT_EQ(choice.of(collective, bytes, true).collective, collective);
      }
    }
  }
}

TEST(Choice, RefusesWhatHasNoAlgorithm) {
  const Choice choice(2, false, Forced{});
  EXPECT_THAT(
      expect_error(ErrorCode::bad_argument, [&] { choice.of(Collective::split, 0, false); }),
      HasSubstr("split"));
  EXPECT_THAT(
      expect_error(ErrorCode::bad_argument, [&] { choice.of(Collective::scatter, 0, true); }),
      HasSubstr("scatter"));
}

// The first row that holds is taken.
TEST(Choice, FollowsTheTable) {
  for (const Tuning& row : tuning_table()) {
    EXPECT_EQ(row.algorithm->collective, row.collective);
    EXPECT_TRUE(row.shared || row.algorithm->needs != Needs::shared_buffer);
  }
  for (const int ranks : {1, 2, 3, 4, 8, 16, 17, 300}) {
    const bool pull = ranks % 2 == 0;
    const Choice choice(ranks, pull, Forced{});
    for (const Tuning& row : tuning_table()) {
      for (const std::size_t bytes : {row.bytes, row.bytes + 1, std::size_t{8}}) {
        const auto expected =
            std::find_if(tuning_table().begin(), tuning_table().end(), [&](const Tuning& other) {
              return other.collective == row.collective && other.shared == row.shared &&
                     ranks <= other.ranks && bytes <= other.bytes &&
                     (pull || other.algorithm->needs != Needs::pull);
            });
        ASSERT_NE(expected, tuning_table().end());
        EXPECT_EQ(&choice.of(row.collective, bytes, row.shared), expected->algorithm);
      }
    }
  }
}

TEST(AlgorithmTable, HasNoNameTwice) {
  std::set<std::string> names;
  for (const Algorithm* algorithm : algorithm_table()) {
    const std::string name =
        std::string(to_string(algorithm->collective)) + "=" + std::string(algorithm->name);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_FALSE(refuse_algorithms(name)) << name;
    EXPECT_EQ(Forced::parse(name).find(algorithm->collective), algorithm);
  }
}

TEST(Forced, IsObeyed) {
  EXPECT_EQ(Forced::parse("auto").find(Collective::all_reduce), nullptr);
  const Forced forced = Forced::parse("all_reduce=two_phase,barrier=dissemination");
  EXPECT_EQ(forced.find(Collective::all_reduce), &kAllReduceTwoPhase);
  EXPECT_EQ(forced.find(Collective::barrier), &kBarrierDissemination);
  EXPECT_EQ(forced.find(Collective::all_gather), nullptr);
  const Choice choice(2, false, forced);
  for (const std::size_t bytes : kSizes) {
    EXPECT_EQ(&choice.of(Collective::all_reduce, bytes, false), &kAllReduceTwoPhase);
    EXPECT_EQ(&choice.of(Collective::all_reduce, bytes, true), &kAllReduceTwoPhase);
    EXPECT_EQ(&choice.of(Collective::barrier, bytes, false), &kBarrierDissemination);
  }
}

// Where there is no memory to work on directly, the table decides.
TEST(Forced, WorksDirectlyOnlyWhereThatCanBe) {
  const Forced forced = Forced::parse("all_reduce=direct");
  const Choice choice(2, false, forced);
  const Choice free(2, false, Forced{});
  for (const std::size_t bytes : kSizes) {
    EXPECT_EQ(&choice.of(Collective::all_reduce, bytes, true), &kAllReduceDirect);
    EXPECT_EQ(&choice.of(Collective::all_reduce, bytes, false),
              &free.of(Collective::all_reduce, bytes, false));
  }
}

// What was asked for is done, or nothing is.
TEST(Forced, NeedsRanksThatCanPull) {
  const Forced forced = Forced::parse("broadcast=pull");
  EXPECT_EQ(&Choice(3, true, forced).of(Collective::broadcast, 8, false), &kBroadcastPull);
  EXPECT_THAT(expect_error(ErrorCode::mechanism_unavailable, [&] { Choice(3, false, forced); }),
              HasSubstr("broadcast=pull"));
}

TEST(Forced, RefusesOtherTexts) {
  for (const char* text :
       {"", "flat", "all_reduce", "all_reduce=", "=flat", "all_reduce=flat,", ",all_reduce=flat",
        "all_reduce=flat,auto", "auto,all_reduce=flat", "all_reduce = flat", "ALL_REDUCE=flat",
        "broadcast=two_phase", "split=flat", "all_reduce=flat;barrier=flat"}) {
    EXPECT_TRUE(refuse_algorithms(text)) << text;
    const std::string message =
        expect_error(ErrorCode::setting_invalid, [&] { Forced::parse(text); });
    EXPECT_THAT(message, HasSubstr("RANKLINK_ALGORITHM"));
    EXPECT_THAT(message, HasSubstr(*refuse_algorithms(text)));
  }
}

TEST(Forced, NamesTheNearestOfAnUnknownOne) {
  EXPECT_THAT(*refuse_algorithms("all_reduce=two-phase"),
              HasSubstr("did you mean all_reduce=two_phase?"));
  EXPECT_THAT(*refuse_algorithms("barrier=flat,allreduce=flat"),
              HasSubstr("did you mean all_reduce=flat?"));
  EXPECT_THAT(*refuse_algorithms("nothing=of_the_kind_at_all"), Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace ranklink
