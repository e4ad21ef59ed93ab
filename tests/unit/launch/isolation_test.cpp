#include "launch/isolation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ranklink {
namespace {

std::string remedy_of(std::string_view text) {
  try {
    parse_isolation(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::setting_invalid);
    return error.remedy();
  }
  ADD_FAILURE() << "'" << text << "' was taken";
  return {};
}

TEST(Isolation, NothingIsNone) {
  EXPECT_FALSE(parse_isolation("").any());
  EXPECT_FALSE(parse_isolation("  ").any());
  EXPECT_EQ(parse_isolation("").text(), "");
}

TEST(Isolation, ReadsListsInAnyOrder) {
  const Isolation isolation = parse_isolation("net, pid");
  EXPECT_TRUE(isolation.any());
  EXPECT_TRUE(isolation.has("pid"));
  EXPECT_TRUE(isolation.has("net"));
  EXPECT_FALSE(isolation.has("user"));
  EXPECT_FALSE(isolation.has("nonsense"));
  EXPECT_EQ(isolation.text(), "pid,net");
}

TEST(Isolation, AllMeansAll) {
  EXPECT_EQ(parse_isolation("all").text(), "pid,net,ipc,uts,mnt,user");
}

TEST(Isolation, AddsKinds) { EXPECT_EQ(parse_isolation("net").with("user").text(), "net,user"); }

TEST(Isolation, RefusesWithTheNearestWord) {
  EXPECT_NE(remedy_of("pod").find("did you mean pid?"), std::string::npos);
  EXPECT_NE(remedy_of("pid,network").find("did you mean net?"), std::string::npos);
  EXPECT_NE(remedy_of("mount").find("did you mean mnt?"), std::string::npos);
  EXPECT_EQ(remedy_of("zzzzzzzzz").find("did you mean"), std::string::npos);
  remedy_of("pid,");
  remedy_of(",");
}

}  // namespace
}  // namespace ranklink
