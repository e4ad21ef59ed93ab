#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ranklink {

/// The least memory limit of the cgroups that /proc/self/cgroup names in `memberships` and of all
/// above them that can be seen, in bytes; 0 where none has one. Knows version 1, version 2 and both
/// at once. `root` ends with a slash.
std::uint64_t least_memory_limit(const std::string& root, std::string_view memberships);

/// What runs this container: `docker`, `podman`, `kubernetes`, `containerd`, `lxc`, another name
/// that the variable `container` gives, or empty.
std::string container_runtime(const std::string& root, std::string_view memberships);

}  // namespace ranklink
