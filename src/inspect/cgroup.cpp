#include "inspect/cgroup.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "inspect/files.h"

namespace ranklink {
namespace {

// Version 1 writes "no limit" as the largest whole number of pages.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

struct Membership {
  std::string_view controllers;
  std::string_view path;
};

// Takes the next line, as in "4:memory:/docker/3f", off `lines`.
Membership next_membership(std::string_view& lines) {
  const std::string_view line = lines.substr(0, lines.find('\n'));
  lines.remove_prefix(std::min(line.size() + 1, lines.size()));
  const auto first = line.find(':');
  if (first == std::string_view::npos) return {};
  const auto second = line.find(':', first + 1);
  if (second == std::string_view::npos) return {};
  return {line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::string_view one = controllers.substr(0, controllers.find(','));
    if (one == wanted) return true;
    controllers.remove_prefix(std::min(one.size() + 1, controllers.size()));
  }
  return false;
}

void walk_up(const std::string& mount, std::string_view path, std::string_view file,
             std::uint64_t& least) {
  // "/../x" is a cgroup outside what this cgroup namespace shows.
  if (path.find("/..") != std::string_view::npos) path = {};
  for (;;) {
    while (path.ends_with('/')) path.remove_suffix(1);
    std::string name = mount;
    name.append(path).append("/").append(file);
    // "max" isn't a number; a cgroup that a container doesn't see has no file.
    const auto limit = number_or(read_text(name), kNoLimit);
    if (limit < kNoLimit && (least == 0 || limit < least)) least = limit;
    if (path.empty()) return;
    path = path.substr(0, path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/'));
  }
}

std::string_view runtime_by_path(std::string_view memberships) {
  // In this order: a pod's path also names the engine below it.
  constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"kubepods", "kubernetes"},   {"libpod", "podman"}, {"docker", "docker"},
      {"containerd", "containerd"}, {"lxc", "lxc"},
  };
  for (const auto& [mark, runtime] : kMarks) {
    std::string_view rest = memberships;
    while (!rest.empty()) {
      if (next_membership(rest).path.find(mark) != std::string_view::npos) return runtime;
    }
  }
  return {};
}

}  // namespace

std::uint64_t least_memory_limit(const std::string& root, std::string_view memberships) {
  std::uint64_t least = 0;
  const std::string mounts = root + "sys/fs/cgroup";
  while (!memberships.empty()) {
    const Membership one = next_membership(memberships);
    if (lists(one.controllers, "memory")) {
      walk_up(mounts + "/memory", one.path, "memory.limit_in_bytes", least);
    } else if (one.controllers.empty() && !one.path.empty()) {
      walk_up(mounts, one.path, "memory.max", least);
      // A hybrid machine mounts version 2 one level lower.
      if (::access((mounts + "/unified").c_str(), F_OK) == 0) {
        walk_up(mounts + "/unified", one.path, "memory.max", least);
      }
    }
  }
  return least;
}

std::string container_runtime(const std::string& root, std::string_view memberships) {
  // Kubernetes first: what it starts also bears the marks of the engine that it uses.
  if (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr) return "kubernetes";
  const std::string_view by_path = runtime_by_path(memberships);
  if (by_path == "kubernetes") return std::string(by_path);
  if (::access((root + "run/.containerenv").c_str(), F_OK) == 0) return "podman";
  if (::access((root + ".dockerenv").c_str(), F_OK) == 0) return "docker";
  if (!by_path.empty()) return std::string(by_path);
  const char* variable = std::getenv("container");
  return variable == nullptr ? std::string{} : std::string(variable).substr(0, 64);
}

}  // namespace ranklink
