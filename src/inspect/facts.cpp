#include "inspect/facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/magic.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "inspect/cgroup.h"
#include "inspect/files.h"

namespace ranklink {
namespace {

// A link reads "pid:[4026531836]"; it dangles in a recorded machine, so it is read, not followed.
std::uint64_t namespace_inode(const std::string& link) {
  const auto bracket = link.find('[');
  if (bracket == std::string::npos) return 0;
  return number_or(std::string_view(link).substr(bracket + 1), std::uint64_t{0});
}

// Field 22 of /proc/self/stat, counted from behind the program's name, which may hold anything.
std::uint64_t start_time_of(std::string_view stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  stat.remove_prefix(name_end + 1);
  for (int skipped = 0; skipped < 20; ++skipped) {
    const auto space = stat.find(' ');
    if (space == std::string_view::npos) return 0;
    stat.remove_prefix(space + 1);
  }
  return number_or(stat, std::uint64_t{0});
}

void read_process(const std::string& root, Facts& facts) {
  const std::string self = root + "proc/self/";
  facts.program = read_text(self + "comm");
  facts.start_time = start_time_of(read_text(self + "stat"));
  for (std::size_t i = 0; i < kNamespaceKinds.size(); ++i) {
    facts.namespaces[i] = namespace_inode(read_link((self + "ns/").append(kNamespaceKinds[i])));
  }
  const std::string status = read_text(self + "status");
  facts.seccomp_mode = number_or(field(status, "Seccomp:"), facts.seccomp_mode);
  facts.no_new_privileges = field(status, "NoNewPrivs:") == "1";
  facts.capabilities = number_or(field(status, "CapEff:"), facts.capabilities, 16);
}

void read_machine(const std::string& root, Facts& facts) {
  const std::string kernel = root + "proc/sys/kernel/";
  facts.hostname = read_text(kernel + "hostname");
  facts.boot_id = read_text(kernel + "random/boot_id");
  facts.yama_scope = number_or(read_text(kernel + "yama/ptrace_scope"), facts.yama_scope);
  const std::string meminfo = read_text(root + "proc/meminfo");
  facts.memory_available = number_or(field(meminfo, "MemAvailable:"), std::uint64_t{0}) * 1024;

  const std::string memberships = read_text(root + "proc/self/cgroup");
  facts.memory_limit = least_memory_limit(root, memberships);
  facts.container = container_runtime(root, memberships);

  struct statfs shm {};
  if (::statfs((root + "dev/shm").c_str(), &shm) == 0 && shm.f_type == TMPFS_MAGIC) {
    const auto block = static_cast<std::uint64_t>(shm.f_bsize);
    facts.shm_size = shm.f_blocks * block;
    facts.shm_free = shm.f_bavail * block;
  }
}

// On itself a process needs no permission, so EPERM or ENOSYS here can only come from a filter or
// an old kernel.
void try_pidfd(Facts& facts) {
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, facts.pid, 0)));
  if (!self) {
    facts.pidfd_open_errno = errno;
    facts.pidfd_getfd_errno = errno;  // without a pidfd it can't work either
    return;
  }
  const Fd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, self.get(), self.get(), 0)));
  if (!copy) facts.pidfd_getfd_errno = errno;
}

void ask_kernel(Facts& facts) {
  facts.pid = ::getpid();
  facts.uid = ::getuid();
  facts.gid = ::getgid();
  facts.dumpable = ::prctl(PR_GET_DUMPABLE) == 1;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.descriptors_soft = limit.rlim_cur;
    facts.descriptors_hard = limit.rlim_max;
  }
  static_assert(RLIM_INFINITY == ~rlim_t{0});
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_memory_soft = limit.rlim_cur;
  try_pidfd(facts);
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  }
  return text;
}

std::vector<InterfaceFacts> list_interfaces() {
  std::vector<InterfaceFacts> list;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return list;
  // A host of many containers has an interface for each, so they are found by an index.
  std::unordered_map<std::string_view, std::size_t> places;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const auto [place, is_new] = places.try_emplace(entry->ifa_name, list.size());
    if (is_new) list.push_back({.name = entry->ifa_name});
    InterfaceFacts& one = list[place->second];
    one.up = (entry->ifa_flags & IFF_UP) != 0;
    if (std::string text = address_text(entry->ifa_addr); !text.empty()) {
      one.addresses.push_back(std::move(text));
    }
  }
  ::freeifaddrs(first);
  return list;
}

}  // namespace

std::uint64_t process_start_time(int pid, const std::string& root) {
  return start_time_of(read_text(root + "proc/" + std::to_string(pid) + "/stat"));
}

Facts inspect_process(const std::string& root) {
  const std::string below = root.ends_with('/') ? root : root + '/';
  Facts facts;
  read_process(below, facts);
  read_machine(below, facts);
  ask_kernel(facts);
  facts.interfaces = list_interfaces();
  return facts;
}

std::vector<std::string_view> shared_namespaces(const Facts& a, const Facts& b) {
  std::vector<std::string_view> shared;
  // The first namespaces of every kernel bear the same inode numbers.
  if (a.boot_id.empty() || a.boot_id != b.boot_id) return shared;
  for (std::size_t i = 0; i < kNamespaceKinds.size(); ++i) {
    if (a.namespaces[i] != 0 && a.namespaces[i] == b.namespaces[i]) {
      shared.push_back(kNamespaceKinds[i]);
    }
  }
  return shared;
}

}  // namespace ranklink
