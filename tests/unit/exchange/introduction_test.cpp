#include "exchange/introduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "../rendezvous/refusals.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using testing::Not;

Introduction introduced(const std::vector<std::pair<std::string, std::string>>& changes = {}) {
  Settings settings;
  for (const auto& [name, value] : changes) settings.set(name, value, Origin::environment);
  return introduce(Facts{.hostname = "node-7"}, settings, {"unix:///dev/shm/x", "tcp://a:1"});
}

TEST(Introduction, ComesBackFromItsBytes) {
  const Introduction in = introduced({{"RANKLINK_MECHANISM", "fd+pidfd"}});
  const Introduction out = Introduction::decode(in.encode());
  EXPECT_EQ(out.facts.hostname, "node-7");
  EXPECT_EQ(out.endpoints, in.endpoints);
  ASSERT_EQ(out.settings.size(), in.settings.size());
  for (std::size_t i = 0; i < in.settings.size(); ++i) {
    EXPECT_EQ(out.settings[i].name, in.settings[i].name);
    EXPECT_EQ(out.settings[i].value, in.settings[i].value);
    EXPECT_EQ(out.settings[i].origin, in.settings[i].origin);
  }
  EXPECT_EQ(out.setting("RANKLINK_MECHANISM"), "fd+pidfd");
  EXPECT_EQ(out.setting("RANKLINK_TRIALS"), "first");
  EXPECT_EQ(out.setting("RANKLINK_NOTHING"), "");
}

TEST(Introduction, IsTakenWholeOrNotAtAll) {
  expect_whole_only(introduced().encode(), Introduction::decode);
}

TEST(Introduction, LeavesSecretsAndInternalsOut) {
  const Introduction mine =
      introduced({{"RANKLINK_SECRET", "a secret of this test"}, {"RANKLINK_LAUNCHER_FD", "7"}});
  EXPECT_EQ(mine.setting("RANKLINK_SECRET"), "");
  EXPECT_EQ(mine.setting("RANKLINK_LAUNCHER_FD"), "");
  const Bytes bytes = mine.encode();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text.find("a secret of this test"), std::string_view::npos);
}

TEST(CheckAgreement, TakesWhatAgrees) {
  EXPECT_NO_THROW(check_agreement({}));
  EXPECT_NO_THROW(check_agreement({introduced()}));
  EXPECT_NO_THROW(check_agreement({introduced(), introduced({{"RANKLINK_MECHANISM", "auto"}})}));
  EXPECT_NO_THROW(check_agreement({introduced({{"RANKLINK_OP_TIMEOUT", "5s"}}), introduced()}));
}

TEST(CheckAgreement, ShowsWhoHoldsWhatFromWhere) {
  try {
    check_agreement({introduced(), introduced({{"RANKLINK_MECHANISM", "none"}}), introduced(),
                     introduced({{"RANKLINK_MECHANISM", "none"}})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::settings_disagree);
    EXPECT_EQ(error.step(), "inspect");
    EXPECT_EQ(error.cause(),
              "RANKLINK_MECHANISM=auto on ranks 0,2 (from: default); "
              "RANKLINK_MECHANISM=none on ranks 1,3 (from: environment)");
    EXPECT_EQ(error.remedy(), "give RANKLINK_MECHANISM the same value on all ranks");
  }
}

TEST(CheckAgreement, ShowsAllThatDisagree) {
  const std::string what = expect_error(ErrorCode::settings_disagree, [&] {
    check_agreement(
        {introduced({{"RANKLINK_TRIALS", "all"}}), introduced({{"RANKLINK_MECHANISM", "none"}})});
  });
  EXPECT_THAT(what, HasSubstr("RANKLINK_TRIALS=all on rank 0 (from: environment)"));
  EXPECT_THAT(what, HasSubstr("RANKLINK_TRIALS=first on rank 1 (from: default)"));
  EXPECT_THAT(what, HasSubstr("RANKLINK_MECHANISM=none on rank 1"));
  EXPECT_THAT(what, Not(HasSubstr("RANKLINK_DEVICE")));
}

}  // namespace
}  // namespace ranklink
