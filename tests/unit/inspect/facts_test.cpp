#include "inspect/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>

#include "machine_tree.h"

namespace ranklink {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MachineTree& record_process(MachineTree& tree) {
  std::string stat = "7 (a (b) c) S";  // field 3; the name may hold spaces and brackets
  for (int number = 4; number <= 30; ++number) stat += " " + std::to_string(number * 100);
  return tree.file("proc/self/comm", "a (b) c\n")
      .file("proc/self/stat", stat + "\n")
      .file("proc/self/status",
            "Name:\tx\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\n"
            "Seccomp_filters:\t1\n")
      .link("proc/self/ns/pid", "pid:[4026532001]")
      .link("proc/self/ns/net", "net:[4026532002]")
      .link("proc/self/ns/user", "user:[4026531837]")
      .file("proc/self/cgroup", "0::/job/rank\n")
      .file("sys/fs/cgroup/job/memory.max", "1073741824\n")
      .file("proc/sys/kernel/hostname", "node-7\n")
      .file("proc/sys/kernel/random/boot_id", "6ba30842-19ff-46e6-a7a9-049e0370ddbc\n")
      .file("proc/meminfo", "MemTotal:  2000 kB\nMemFree: 10 kB\nMemAvailable:   1500 kB\n");
}

TEST(InspectProcess, ReadsARecordedProcess) {
  MachineTree tree;
  const Facts facts = inspect_process(record_process(tree).root());
  EXPECT_EQ(facts.program, "a (b) c");
  EXPECT_EQ(facts.start_time, 2200u);
  EXPECT_EQ(facts.capabilities, 0xa80425fbu);
  EXPECT_TRUE(facts.no_new_privileges);
  EXPECT_EQ(facts.seccomp_mode, 2);
  EXPECT_THAT(facts.namespaces, ElementsAre(4026532001u, 4026532002u, 0, 0, 0, 4026531837u));
  EXPECT_EQ(facts.memory_limit, 1073741824u);
  EXPECT_EQ(facts.hostname, "node-7");
  EXPECT_EQ(facts.boot_id, "6ba30842-19ff-46e6-a7a9-049e0370ddbc");
  EXPECT_EQ(facts.memory_available, 1500u * 1024);
}

TEST(InspectProcess, TakesARootWithoutItsSlash) {
  MachineTree tree;
  std::string root = record_process(tree).root();
  root.pop_back();
  EXPECT_EQ(inspect_process(root).hostname, "node-7");
}

TEST(InspectProcess, ReadsEachScopeOfYama) {
  for (int scope = 0; scope <= 3; ++scope) {
    MachineTree tree;
    tree.file("proc/sys/kernel/yama/ptrace_scope", std::to_string(scope) + "\n");
    EXPECT_EQ(inspect_process(tree.root()).yama_scope, scope);
  }
}

TEST(InspectProcess, KeepsDefaultsForWhatIsMissing) {
  const ScopedVariable no_kubernetes("KUBERNETES_SERVICE_HOST", nullptr);
  const ScopedVariable no_container("container", nullptr);
  const MachineTree tree;
  const Facts facts = inspect_process(tree.root());
  EXPECT_EQ(facts.hostname, "");
  EXPECT_EQ(facts.boot_id, "");
  EXPECT_EQ(facts.program, "");
  EXPECT_EQ(facts.start_time, 0u);
  EXPECT_THAT(facts.namespaces, testing::Each(0u));
  EXPECT_EQ(facts.seccomp_mode, 0);
  EXPECT_EQ(facts.yama_scope, -1);
  EXPECT_EQ(facts.memory_limit, 0u);
  EXPECT_EQ(facts.memory_available, 0u);
  EXPECT_EQ(facts.shm_size, 0u);
  EXPECT_EQ(facts.container, "");
  EXPECT_EQ(facts.pid, ::getpid());  // not from a file
}

TEST(InspectProcess, SurvivesDamagedFiles) {
  MachineTree tree;
  tree.file("proc/self/stat", "7 (x) S 1 2")
      .file("proc/self/status", "Seccomp:\nCapEff:\tzz\nNoNewPrivs:")
      .file("proc/self/cgroup", ":::\n\n0:")
      .file("proc/meminfo", "MemAvailable:")
      .file("proc/sys/kernel/yama/ptrace_scope", "?")
      .link("proc/self/ns/pid", "pid:[")
      .link("proc/self/ns/net", "elsewhere");
  const Facts facts = inspect_process(tree.root());
  EXPECT_EQ(facts.start_time, 0u);
  EXPECT_EQ(facts.seccomp_mode, 0);
  EXPECT_EQ(facts.yama_scope, -1);
  EXPECT_THAT(facts.namespaces, testing::Each(0u));
}

TEST(InspectProcess, MeasuresShmOnlyWhereItIsATmpfs) {
  struct stat shm {};
  if (::stat("/dev/shm", &shm) != 0 || inspect_process().shm_size == 0) {
    GTEST_SKIP() << "/dev/shm is no tmpfs of a known size here";
  }
  MachineTree linked;
  linked.link("dev/shm", "/dev/shm");
  const Facts facts = inspect_process(linked.root());
  EXPECT_GT(facts.shm_size, 0u);
  EXPECT_LE(facts.shm_free, facts.shm_size);
  struct statfs disk {};
  if (::statfs("/usr", &disk) != 0 || disk.f_type == TMPFS_MAGIC) GTEST_SKIP() << "no disk here";
  MachineTree other;
  other.link("dev/shm", "/usr");
  EXPECT_EQ(inspect_process(other.root()).shm_size, 0u);
}

TEST(InspectProcess, AsksTheKernelAboutThisProcess) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const Facts facts = inspect_process();
  EXPECT_EQ(facts.pid, ::getpid());
  EXPECT_EQ(facts.uid, ::getuid());
  EXPECT_EQ(facts.gid, ::getgid());
  EXPECT_EQ(facts.descriptors_soft, files.rlim_cur);
  EXPECT_EQ(facts.descriptors_hard, files.rlim_max);
  struct stat net {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &net), 0);
  EXPECT_EQ(facts.namespaces[1], net.st_ino);
  EXPECT_GT(facts.start_time, 0u);
  EXPECT_FALSE(facts.boot_id.empty());
  const auto lo = std::find_if(facts.interfaces.begin(), facts.interfaces.end(),
                               [](const InterfaceFacts& one) { return one.name == "lo"; });
  ASSERT_NE(lo, facts.interfaces.end());
  if (lo->up) {
    EXPECT_THAT(lo->addresses, testing::Contains("127.0.0.1"));
  }
}

TEST(InspectProcess, SeesThatItIsNotDumpable) {
  const MachineTree tree;
  const int before = ::prctl(PR_GET_DUMPABLE);
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  const bool hidden = inspect_process(tree.root()).dumpable;
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  const bool shown = inspect_process(tree.root()).dumpable;
  ::prctl(PR_SET_DUMPABLE, before);
  EXPECT_FALSE(hidden);
  EXPECT_TRUE(shown);
}

// In a child, since a filter stays: true when the call failed as `refuse` says and all else holds.
bool child_sees(long call, int refuse, const std::function<bool(const Facts&)>& expected) {
  const pid_t child = ::fork();
  if (child == 0) {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(refuse)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{std::size(steps), steps};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      ::_exit(2);
    }
    ::_exit(expected(inspect_process()) ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(InspectProcess, SeesAFilterThatRefusesPidfdGetfd) {
  EXPECT_TRUE(child_sees(SYS_pidfd_getfd, EPERM, [](const Facts& facts) {
    return facts.pidfd_open_errno == 0 && facts.pidfd_getfd_errno == EPERM &&
           facts.seccomp_mode == 2 && facts.no_new_privileges;
  }));
}

TEST(InspectProcess, SeesAFilterThatRefusesPidfdOpen) {
  EXPECT_TRUE(child_sees(SYS_pidfd_open, ENOSYS, [](const Facts& facts) {
    return facts.pidfd_open_errno == ENOSYS && facts.pidfd_getfd_errno == ENOSYS;
  }));
}

TEST(InspectProcess, LeavesNoDescriptorOpen) {
  const auto open_now = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_now();
  inspect_process();
  EXPECT_EQ(open_now(), before);
}

TEST(InspectProcess, IsQuick) {
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    inspect_process();
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(best, std::chrono::milliseconds(1));
}

TEST(SharedNamespaces, ListsTheKindsOfEqualInodes) {
  const Facts a{.boot_id = "b", .namespaces = {1, 2, 3, 4, 0, 6}};
  const Facts b{.boot_id = "b", .namespaces = {9, 2, 3, 9, 0, 6}};
  EXPECT_THAT(shared_namespaces(a, b), ElementsAre("net", "ipc", "user"));
}

TEST(SharedNamespaces, AreNoneBetweenMachinesOrUnknownOnes) {
  const Facts a{.boot_id = "b", .namespaces = {1, 2, 3, 4, 5, 6}};
  Facts b = a;
  EXPECT_EQ(shared_namespaces(a, b).size(), 6u);
  b.boot_id = "c";
  EXPECT_THAT(shared_namespaces(a, b), IsEmpty());
  Facts unknown = a;
  unknown.boot_id.clear();
  EXPECT_THAT(shared_namespaces(unknown, unknown), IsEmpty());
}

}  // namespace
}  // namespace ranklink
