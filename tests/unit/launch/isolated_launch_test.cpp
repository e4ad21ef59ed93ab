#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "inspect/facts.h"
#include "launch_in_child.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Each line that holds `key`, without what stands before it.
std::vector<std::string> lines_with(const std::string& text, const std::string& key) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto at = line.find(key);
    if (at != std::string::npos) lines.push_back(line.substr(at + key.size()));
  }
  return lines;
}

constexpr const char* kLook =
    "for n in pid net ipc uts mnt user; do echo ns-$n=$(readlink /proc/self/ns/$n); done;"
    "echo pid=$$; echo host=$(cat /proc/sys/kernel/hostname); echo uid=$(id -u) gid=$(id -g);"
    "echo shm=$(stat -f -c %b*%S /dev/shm);"
    "echo lo=$(cat /proc/net/if_inet6 | grep -c ' lo$');"
    "echo processes=$(ls /proc | grep -c '^[0-9]')";

class IsolatedLaunch : public testing::TestWithParam<bool> {
 protected:
  bool ordinary() const { return GetParam(); }

  Outcome look(const std::string& kinds) {
    LaunchTest test = script(2, kLook);
    test.options.isolation = parse_isolation(kinds);
    if (ordinary()) test.before = become_ordinary_user;
    return launch_in_child(test);
  }
  void SetUp() override {
    if (ordinary() && ::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  }
};

#define NEED_PERMISSION(outcome)                                 \
  if ((outcome).code == "isolation_refused") {                   \
    EXPECT_FALSE((outcome).remedy.empty());                      \
    GTEST_SKIP() << (outcome).cause << ": " << (outcome).remedy; \
  }                                                              \
  ASSERT_EQ((outcome).exit_code, 0) << (outcome).cause << (outcome).err

TEST_P(IsolatedLaunch, EachKindIsOwn) {
  for (const std::string_view kind : kNamespaceKinds) {
    const Outcome outcome = look(std::string(kind));
    NEED_PERMISSION(outcome);
    const auto names = lines_with(outcome.out, fmt::format("ns-{}=", kind));
    ASSERT_EQ(names.size(), 2U) << outcome.out;
    EXPECT_NE(names[0], names[1]) << kind;
    // What wasn't asked for is shared, but for the user namespace that others may need.
    for (const std::string_view other : kNamespaceKinds) {
      if (other == kind || other == "user") continue;
      const auto shared = lines_with(outcome.out, fmt::format("ns-{}=", other));
      ASSERT_EQ(shared.size(), 2U);
      EXPECT_EQ(shared[0], shared[1]) << kind << ": " << other;
    }
  }
}

TEST_P(IsolatedLaunch, AllTogether) {
  const Outcome outcome = look("all");
  NEED_PERMISSION(outcome);
  for (const std::string_view kind : kNamespaceKinds) {
    const auto names = lines_with(outcome.out, fmt::format("ns-{}=", kind));
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 2U) << kind;
  }
  const int id = ordinary() ? 65534 : static_cast<int>(::geteuid());
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[1] uid={} gid={}\n", id, id)));
  EXPECT_THAT(outcome.out, HasSubstr("[0] pid=1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] host=ranklink-1\n"));
  EXPECT_EQ(lines_with(outcome.out, "shm=")[0], "16384*4096");
}

TEST_P(IsolatedLaunch, FreshProcShowsOnlyTheRank) {
  const Outcome outcome = look("pid,mnt");
  NEED_PERMISSION(outcome);
  const auto counts = lines_with(outcome.out, "processes=");
  ASSERT_EQ(counts.size(), 2U);
  // Where parts of /proc are covered by other mounts, as in containers, the old one stays.
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" /proc/") != std::string::npos) GTEST_SKIP() << "covered: " << line;
  }
  EXPECT_LE(std::atoi(counts[0].c_str()), 5);
}

TEST_P(IsolatedLaunch, RanksInPidNamespacesEnd) {
  const std::string sleep = fmt::format("400.{}", ::getpid());
  LaunchTest test = script(
      2, fmt::format("test $RANK = 0 && exit 6; sleep {0} & setsid sleep {0} & sleep {0}", sleep));
  test.options.isolation = parse_isolation("pid");
  if (ordinary()) test.before = become_ordinary_user;
  const Outcome outcome = launch_in_child(test);
  if (outcome.code == "isolation_refused") GTEST_SKIP() << outcome.remedy;
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(processes_with(sleep), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, IsolatedLaunch, testing::Values(false, true),
                         [](const auto& of) { return of.param ? "Ordinary" : "AsIs"; });

}  // namespace
}  // namespace ranklink
