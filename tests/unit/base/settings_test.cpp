#include "base/settings.h"

#include <gtest/gtest.h>

#include <set>

#include "expect_error.h"

namespace ranklink {
namespace {

Settings read(std::vector<std::string> variables) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  Settings settings;
  settings.read_environment(environment.data());
  return settings;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Settings, StartAtTheirDefaults) {
  const Settings settings;
  EXPECT_EQ(settings.value("RANKLINK_MECHANISM"), "auto");
  EXPECT_EQ(settings.get("RANKLINK_MECHANISM").origin, Origin::built_in);
  EXPECT_FALSE(settings.is_set("RANKLINK_SECRET"));
  EXPECT_EQ(settings.duration("RANKLINK_JOIN_TIMEOUT"), Milliseconds(120'000));
  EXPECT_EQ(settings.duration("RANKLINK_RUN_TIMEOUT"), Milliseconds::max());
  EXPECT_TRUE(settings.deadline("RANKLINK_RUN_TIMEOUT").is_never());
}

// What a setting can't be set to can't be its default either.
TEST(SettingTable, HasUsableDefaultsAndNoNameTwice) {
  std::set<std::string_view> names;
  for (const SettingRow& row : setting_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.name.starts_with("RANKLINK_")) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    if (row.refuse && !row.built_in.empty()) {
      EXPECT_FALSE(row.refuse(row.built_in)) << row.name;
    }
  }
}

TEST(Settings, ReadTheEnvironment) {
  const Settings settings =
      read({"PATH=/bin", "RANKLINK_TRIALS=all", "RANKLINK_RENDEZVOUS=tcp://h:1?a=b"});
  EXPECT_EQ(settings.value("RANKLINK_TRIALS"), "all");
  EXPECT_EQ(settings.get("RANKLINK_TRIALS").origin, Origin::environment);
  EXPECT_EQ(settings.value("RANKLINK_RENDEZVOUS"), "tcp://h:1?a=b");
  Settings untouched;
  untouched.read_environment(nullptr);
  EXPECT_FALSE(untouched.is_set("RANKLINK_RENDEZVOUS"));
}

TEST(Settings, NameTheNearestOfAnUnknownOne) {
  const std::string message =
      expect_error(ErrorCode::setting_unknown, [] { read({"RANKLINK_OP_TIMOUT=3s"}); });
  EXPECT_TRUE(contains(message, "RANKLINK_OP_TIMOUT")) << message;
  EXPECT_TRUE(contains(message, "did you mean RANKLINK_OP_TIMEOUT?")) << message;
  EXPECT_TRUE(contains(message, "environment")) << message;
}

TEST(Settings, DoNotSuggestWhatIsFarAwayOrInternal) {
  const std::string far =
      expect_error(ErrorCode::setting_unknown, [] { read({"RANKLINK_COLOUR_OF_THE_LOGO=red"}); });
  EXPECT_FALSE(contains(far, "did you mean")) << far;
  const std::string internal =
      expect_error(ErrorCode::setting_unknown, [] { read({"RANKLINK_MESSAGE_FDS=3"}); });
  EXPECT_FALSE(contains(internal, "RANKLINK_MESSAGE_FD?")) << internal;
}

TEST(Settings, RefuseAnUnusableValueByItsNearest) {
  const std::string message =
      expect_error(ErrorCode::setting_invalid, [] { read({"RANKLINK_MECHANISM=fd+sockets"}); });
  EXPECT_TRUE(contains(message, "RANKLINK_MECHANISM='fd+sockets'")) << message;
  EXPECT_TRUE(contains(message, "did you mean fd+socket?")) << message;
}

TEST(Settings, RefuseAnEmptyValueOfEachKind) {
  for (const SettingRow& row : setting_table()) {
    expect_error(ErrorCode::setting_invalid, [&] { read({std::string(row.name) + "="}); });
  }
}

TEST(Settings, RefuseValuesOfAWrongShape) {
  for (const char* wrong :
       {"RANKLINK_RENDEZVOUS=host:29400", "RANKLINK_RENDEZVOUS=tcp://", "RANKLINK_SOCKET_DIR=tmp",
        "RANKLINK_LAUNCHER_FD=-1", "RANKLINK_LAUNCHER_FD=3x", "RANKLINK_LOG=INFO",
        "RANKLINK_JOIN_TIMEOUT=5 s", "RANKLINK_DEVICE=gpu"}) {
    expect_error(ErrorCode::setting_invalid, [&] { read({wrong}); });
  }
}

TEST(Settings, NeverShowASecret) {
  const std::string message =
      expect_error(ErrorCode::setting_invalid, [] { read({"RANKLINK_SECRET=hunter2"}); });
  EXPECT_FALSE(contains(message, "hunter2")) << message;
  EXPECT_TRUE(contains(message, "RANKLINK_SECRET")) << message;
  EXPECT_EQ(read({"RANKLINK_SECRET=0123456789abcdef"}).value("RANKLINK_SECRET"),
            "0123456789abcdef");
}

TEST(Settings, IgnoreWhatKubernetesInjectsForAServiceOfTheirName) {
  const Settings settings = read(
      {"RANKLINK_SERVICE_HOST=10.96.3.4", "RANKLINK_SERVICE_PORT=29400",
       "RANKLINK_SERVICE_PORT_RENDEZVOUS=29400", "RANKLINK_PORT=tcp://10.96.3.4:29400",
       "RANKLINK_PORT_29400_TCP=tcp://10.96.3.4:29400", "RANKLINK_PORT_29400_TCP_PROTO=tcp",
       "RANKLINK_PORT_29400_TCP_PORT=29400", "RANKLINK_PORT_29400_TCP_ADDR=10.96.3.4",
       "RANKLINK_PORT_29401_UDP_ADDR=10.96.3.4", "RANKLINK_PORT_29402_SCTP_PORT=29402",
       "RANKLINK_WORKERS_SERVICE_HOST=10.96.3.5", "RANKLINK_WORKERS_PORT=udp://10.96.3.5:29400"});
  for (const SettingRow& row : setting_table()) {
    EXPECT_NE(settings.get(row.name).origin, Origin::environment) << row.name;
  }
}

TEST(Settings, DoNotTakeAMisspeltPortForKubernetes) {
  expect_error(ErrorCode::setting_unknown, [] { read({"RANKLINK_PORT=29400"}); });
  expect_error(ErrorCode::setting_unknown, [] { read({"RANKLINK_PORT_FOO=tcp"}); });
}

TEST(Settings, KeepTheOldValueWhenANewOneIsRefused) {
  Settings settings;
  settings.set("RANKLINK_TRIALS", "all", Origin::program);
  expect_error(ErrorCode::setting_invalid,
               [&] { settings.set("RANKLINK_TRIALS", "some", Origin::command_line); });
  EXPECT_EQ(settings.value("RANKLINK_TRIALS"), "all");
  EXPECT_EQ(settings.get("RANKLINK_TRIALS").origin, Origin::program);
}

TEST(ParseDuration, TakesEachUnit) {
  EXPECT_EQ(parse_duration("250ms"), Milliseconds(250));
  EXPECT_EQ(parse_duration("30s"), Milliseconds(30'000));
  EXPECT_EQ(parse_duration("30"), Milliseconds(30'000));
  EXPECT_EQ(parse_duration("5m"), Milliseconds(300'000));
  EXPECT_EQ(parse_duration("5min"), Milliseconds(300'000));
  EXPECT_EQ(parse_duration("2h"), Milliseconds(7'200'000));
  EXPECT_EQ(parse_duration("1.5s"), Milliseconds(1500));
  EXPECT_EQ(parse_duration("0"), Milliseconds(0));
}

TEST(ParseDuration, RefusesTheRest) {
  for (const char* wrong : {"", "s", "-1s", "5 s", " 5s", "5s ", "5d", "5sec", "1e99h", "inf",
                            "infms", "nan", "nans", "0x10s"}) {
    EXPECT_FALSE(parse_duration(wrong)) << "'" << wrong << "'";
  }
}

TEST(Nearest, TakesTheFewestEdits) {
  EXPECT_EQ(nearest("frist", {"first", "all"}), "first");
  EXPECT_EQ(nearest("warning", {"debug", "info", "warn"}), std::nullopt);
  EXPECT_EQ(nearest("wanr", {"debug", "info", "warn"}), "warn");
  EXPECT_EQ(nearest("abc", {"abd", "abc"}), "abc");
  EXPECT_EQ(nearest("abc", {}), std::nullopt);
  EXPECT_EQ(nearest("", {"host"}), std::nullopt);
}

}  // namespace
}  // namespace ranklink
