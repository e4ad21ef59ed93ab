#include "inspect/cgroup.h"

#include <gtest/gtest.h>

#include "machine_tree.h"

namespace ranklink {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::string gib(std::uint64_t count) { return std::to_string(count * kGiB) + "\n"; }

TEST(LeastMemoryLimit, IsFoundInAParentOfVersion2) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/job.slice/memory.max", gib(4))
      .file("sys/fs/cgroup/job.slice/rank.scope/memory.max", "max\n")
      .file("sys/fs/cgroup/job.slice/rank.scope/deep/memory.max", gib(8));
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/job.slice/rank.scope/deep\n"), 4 * kGiB);
}

TEST(LeastMemoryLimit, IsNotTakenFromASibling) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/a/memory.max", gib(1)).file("sys/fs/cgroup/ab/memory.max", gib(2));
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/ab"), 2 * kGiB);
}

TEST(LeastMemoryLimit, OfTheRootOfACgroupNamespace) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/memory.max", gib(3));
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/"), 3 * kGiB);
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/../sibling"), 3 * kGiB);
}

TEST(LeastMemoryLimit, DoesNotLeaveTheMountByTwoDots) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/memory.max", gib(3)).file("sys/fs/other/memory.max", gib(1));
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/../other"), 3 * kGiB);
}

TEST(LeastMemoryLimit, OfVersion1) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .file("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", gib(2))
      .file("sys/fs/cgroup/memory/docker/3f/memory.limit_in_bytes", gib(6));
  const char* memberships = "7:blkio:/\n4:cpu,memory:/docker/3f\n1:name=systemd:/\n";
  EXPECT_EQ(least_memory_limit(tree.root(), memberships), 2 * kGiB);
}

// Without a cgroup namespace the path is the host's, while the container's own cgroup is mounted.
TEST(LeastMemoryLimit, OfVersion1WhereThePathIsTheHosts) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", gib(5));
  EXPECT_EQ(least_memory_limit(tree.root(), "4:memory:/docker/3f"), 5 * kGiB);
}

TEST(LeastMemoryLimit, TakesTheLeastOfBothHierarchiesOfAHybrid) {
  MachineTree tree;
  tree.file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", gib(7))
      .file("sys/fs/cgroup/unified/job/memory.max", gib(6));
  EXPECT_EQ(least_memory_limit(tree.root(), "4:memory:/job\n0::/job\n"), 6 * kGiB);
  EXPECT_EQ(least_memory_limit(tree.root(), "4:memory:/job\n0::/\n"), 7 * kGiB);
}

TEST(LeastMemoryLimit, IsNoneWhereNothingLimits) {
  MachineTree tree;
  EXPECT_EQ(least_memory_limit(tree.root(), ""), 0u);
  EXPECT_EQ(least_memory_limit(tree.root(), "0::/job"), 0u);
  EXPECT_EQ(least_memory_limit(tree.root(), "garbage\n:\n::\n4:memory"), 0u);
  tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(least_memory_limit(tree.root(), "4:memory:/"), 0u);
}

class ContainerRuntime : public testing::Test {
 protected:
  std::string runtime(std::string_view memberships = "0::/") {
    return container_runtime(tree_.root(), memberships);
  }
  MachineTree tree_;
  ScopedVariable kubernetes_{"KUBERNETES_SERVICE_HOST", nullptr};
  ScopedVariable container_{"container", nullptr};
};

TEST_F(ContainerRuntime, IsEmptyOutsideOfOne) {
  EXPECT_EQ(runtime("0::/user.slice/session-1.scope"), "");
}

TEST_F(ContainerRuntime, IsKnownByItsFile) {
  tree_.file(".dockerenv", "");
  EXPECT_EQ(runtime(), "docker");
  tree_.file("run/.containerenv", "");
  EXPECT_EQ(runtime(), "podman");
}

TEST_F(ContainerRuntime, IsKnownByACgroupPath) {
  EXPECT_EQ(runtime("4:memory:/docker/3f\n0::/"), "docker");
  EXPECT_EQ(runtime("0::/machine.slice/libpod-3f.scope"), "podman");
  EXPECT_EQ(runtime("0::/system.slice/containerd.service/3f"), "containerd");
  EXPECT_EQ(runtime("0::/lxc.payload.web"), "lxc");
  EXPECT_EQ(runtime("0::/kubepods.slice/cri-containerd-3f.scope"), "kubernetes");
}

TEST_F(ContainerRuntime, IsKubernetesBeforeItsEngine) {
  tree_.file(".dockerenv", "");
  EXPECT_EQ(runtime("0::/kubepods/besteffort/docker-3f.scope"), "kubernetes");
  const ScopedVariable inject("KUBERNETES_SERVICE_HOST", "10.96.0.1");
  EXPECT_EQ(runtime(), "kubernetes");
}

TEST_F(ContainerRuntime, IsKnownByTheVariable) {
  const ScopedVariable by_name("container", "lxc");
  EXPECT_EQ(runtime(), "lxc");
  const ScopedVariable absurd("container", std::string(1000, 'x').c_str());
  EXPECT_EQ(runtime().size(), 64u);
}

}  // namespace
}  // namespace ranklink
