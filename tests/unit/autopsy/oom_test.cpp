#include "autopsy/oom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../inspect/machine_tree.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

TEST(OomWatch, ReadsVersion2) {
  MachineTree machine;
  const std::string events = "sys/fs/cgroup/job/memory.events";
  machine.file("proc/self/cgroup", "0::/job\n").file(events, "low 0\noom 5\noom_kill 2\n");
  OomWatch watch(machine.root());
  EXPECT_EQ(watch.news(), "");
  machine.file(events, "low 0\noom 6\noom_kill 4\n");
  EXPECT_THAT(watch.news(), HasSubstr("cgroup/job"));
  EXPECT_NE(watch.news(), "");  // it killed two
  EXPECT_EQ(watch.news(), "");
}

TEST(OomWatch, ReadsVersion1) {
  MachineTree machine;
  const std::string control = "sys/fs/cgroup/memory/job/memory.oom_control";
  machine.file("proc/self/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n")
      .file(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OomWatch watch(machine.root());
  machine.file(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_THAT(watch.news(), HasSubstr("memory/job"));
}

TEST(OomWatch, FindsAContainersOwnCgroup) {
  MachineTree machine;
  const std::string events = "sys/fs/cgroup/memory.events";
  machine.file("proc/self/cgroup", "0::/docker/3f\n").file(events, "oom_kill 0\n");
  OomWatch watch(machine.root());
  machine.file(events, "oom_kill 1\n");
  EXPECT_NE(watch.news(), "");
}

TEST(OomWatch, FallsBackToTheMachine) {
  MachineTree machine;
  machine.file("proc/self/cgroup", "0::/\n").file("proc/vmstat", "pgfault 1\noom_kill 1\n");
  OomWatch watch(machine.root());
  machine.file("proc/vmstat", "pgfault 1\noom_kill 2\n");
  EXPECT_THAT(watch.news(), HasSubstr("on this machine"));
}

TEST(OomWatch, KnowsNothingWithoutFiles) {
  const MachineTree machine;
  EXPECT_EQ(OomWatch(machine.root()).news(), "");
}

}  // namespace
}  // namespace ranklink
