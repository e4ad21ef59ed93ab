#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace ranklink {

/// The kinds of namespace that isolate ranks from each other, in the order of Facts::namespaces.
inline constexpr std::array<std::string_view, 6> kNamespaceKinds = {"pid", "net", "ipc",
                                                                    "uts", "mnt", "user"};

struct InterfaceFacts {
  std::string name;
  bool up = false;
  std::vector<std::string> addresses;  ///< numeric, without prefix length
};

/// What a process found out about itself and its surroundings. Facts explain and order; they never
/// prove that something works.
struct Facts {
  std::string hostname;
  std::string boot_id;
  std::string program;           ///< of /proc/self/comm
  std::int32_t pid = 0;          ///< in its own pid namespace
  std::uint64_t start_time = 0;  ///< clock ticks since boot: with pid and boot_id, an identity
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::array<std::uint64_t, 6> namespaces{};  ///< inode numbers; 0 where it can't be read
  std::int32_t seccomp_mode = 0;              ///< 0 none, 1 strict, 2 filter
  bool no_new_privileges = false;
  bool dumpable = true;
  std::uint64_t capabilities = 0;  ///< CapEff
  std::int32_t yama_scope = -1;    ///< -1 where Yama isn't there
  std::int32_t pidfd_open_errno =
      0;  ///< of pidfd_open on oneself: EPERM, ENOSYS come from a filter
  std::int32_t pidfd_getfd_errno = 0;  ///< of pidfd_getfd from oneself
  std::uint64_t descriptors_soft = 0;  ///< RLIMIT_NOFILE
  std::uint64_t descriptors_hard = 0;
  std::uint64_t locked_memory_soft = 0;  ///< RLIMIT_MEMLOCK, bytes; ~0 when unlimited
  std::uint64_t memory_limit = 0;        ///< the least limit of its memory cgroups, bytes; 0 none
  std::uint64_t memory_available = 0;    ///< MemAvailable, bytes
  std::uint64_t shm_size = 0;            ///< of /dev/shm, bytes; 0 where it isn't a tmpfs
  std::uint64_t shm_free = 0;
  std::string container;  ///< docker, podman, kubernetes, containerd, lxc; or empty
  std::vector<InterfaceFacts> interfaces;
};

/// Gathers the facts of this process in well under a millisecond. Files are read below `root`, so
/// that tests replay other machines; what can't be read keeps its default, nothing throws.
Facts inspect_process(const std::string& root = "/");

/// Facts::start_time of any process, 0 when it can't be seen: a pid that was used again shows.
std::uint64_t process_start_time(int pid, const std::string& root = "/");

void encode(const Facts& facts, Writer& to);
/// Throws Error(protocol_violation).
Facts decode_facts(Reader& from);

/// The kinds of namespace in which both processes are, as in "net, ipc"; compares inode numbers
/// and boot ids.
std::vector<std::string_view> shared_namespaces(const Facts& a, const Facts& b);

}  // namespace ranklink
