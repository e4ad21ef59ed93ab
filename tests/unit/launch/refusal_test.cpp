#include "launch/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "../inspect/machine_tree.h"
#include "base/error.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

TEST(IsolationRemedy, NamesTheSwitchThatIsOff) {
  MachineTree machine;
  machine.file("proc/sys/kernel/unprivileged_userns_clone", "0\n");
  EXPECT_THAT(isolation_remedy(machine.root(), EPERM, parse_isolation("user"), false),
              HasSubstr("kernel.unprivileged_userns_clone=1"));
}

TEST(IsolationRemedy, NamesAppArmor) {
  MachineTree machine;
  machine.file("proc/sys/kernel/unprivileged_userns_clone", "1\n")
      .file("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  EXPECT_THAT(isolation_remedy(machine.root(), EPERM, parse_isolation("net,user"), false),
              HasSubstr("kernel.apparmor_restrict_unprivileged_userns=0"));
  // Root without a user namespace isn't concerned.
  EXPECT_THAT(isolation_remedy(machine.root(), EPERM, parse_isolation("net"), false),
              HasSubstr("CAP_SYS_ADMIN"));
}

TEST(IsolationRemedy, NamesTheLimits) {
  MachineTree machine;
  machine.file("proc/sys/user/max_user_namespaces", "0\n")
      .file("proc/sys/user/max_net_namespaces", "12\n");
  const std::string remedy =
      isolation_remedy(machine.root(), ENOSPC, parse_isolation("net,user"), false);
  EXPECT_THAT(remedy, HasSubstr("user.max_user_namespaces (now 0)"));
  EXPECT_THAT(remedy, HasSubstr("user.max_net_namespaces (now 12)"));
  EXPECT_THAT(isolation_remedy(machine.root(), EPERM, parse_isolation("user"), false),
              HasSubstr("user.max_user_namespaces (now 0)"));
}

TEST(IsolationRemedy, NamesSeccompInContainers) {
  const MachineTree machine;
  EXPECT_THAT(isolation_remedy(machine.root(), EPERM, parse_isolation("net"), true),
              HasSubstr("seccomp"));
}

TEST(CloneRefused, TellsIsolationFromLimits) {
  EXPECT_EQ(clone_refused(0, EPERM, parse_isolation("net")).code(), ErrorCode::isolation_refused);
  EXPECT_THAT(clone_refused(0, EPERM, parse_isolation("net")).cause(),
              HasSubstr("namespaces net: EPERM"));
  const Error full = clone_refused(7, EAGAIN, parse_isolation("net"));
  EXPECT_EQ(full.code(), ErrorCode::program_unstartable);
  EXPECT_EQ(full.rank(), 7);
  EXPECT_THAT(full.remedy(), HasSubstr("ulimit -u"));
}

TEST(ChildFailed, TellsTheProgramFromTheIsolation) {
  const Error missing = child_failed({1, ChildStep::exec, ENOENT}, "prog", {});
  EXPECT_EQ(missing.code(), ErrorCode::program_unstartable);
  EXPECT_THAT(missing.cause(), HasSubstr("execvp prog: ENOENT"));
  EXPECT_THAT(missing.remedy(), HasSubstr("PATH"));
  const Error refused =
      child_failed({1, ChildStep::user_map, EPERM}, "prog", parse_isolation("user"));
  EXPECT_EQ(refused.code(), ErrorCode::isolation_refused);
  EXPECT_THAT(refused.cause(), HasSubstr("uid_map"));
}

}  // namespace
}  // namespace ranklink
