#include "autopsy/oom.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "inspect/files.h"

namespace ranklink {
namespace {

// The counter files that may be this process's, best first. Inside a container the path that
// /proc/self/cgroup names often isn't there, and its own cgroup is the root of what is mounted.
std::vector<std::string> candidates(const std::string& root) {
  const std::string memberships = read_text(root + "proc/self/cgroup");
  const std::string mount = root + "sys/fs/cgroup";
  std::vector<std::string> files;
  std::string_view rest = memberships;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto path_at = line.find('/');
    if (path_at == std::string_view::npos) continue;
    const std::string path(line.substr(path_at) == "/" ? "" : line.substr(path_at));
    if (line.find(":memory:") != std::string_view::npos) {
      files.push_back(mount + "/memory" + path + "/memory.oom_control");
      files.push_back(mount + "/memory/memory.oom_control");
    } else if (line.starts_with("0::")) {
      files.push_back(mount + path + "/memory.events");
      files.push_back(mount + "/memory.events");
    }
  }
  // Where no cgroup counts, the whole machine's counter does.
  files.push_back(root + "proc/vmstat");
  return files;
}

}  // namespace

OomWatch::OomWatch(const std::string& root) {
  for (std::string& file : candidates(root)) {
    if (::access(file.c_str(), R_OK) != 0) continue;
    counters_ = std::move(file);
    if (field(read_text(counters_), "oom_kill ").empty()) continue;  // a kernel before 4.13
    where_ = counters_.ends_with("vmstat") ? "on this machine"
                                           : fmt::format("in the memory cgroup {}",
                                                         counters_.substr(0, counters_.rfind('/')));
    seen_ = count();
    return;
  }
  counters_.clear();
}

std::uint64_t OomWatch::count() const {
  return number_or<std::uint64_t>(field(read_text(counters_), "oom_kill "), 0);
}

std::string OomWatch::news() {
  if (counters_.empty()) return {};
  if (count() <= seen_) return {};
  ++seen_;  // one a rank: when it struck two of them, both are to hear of it
  return fmt::format("the kernel's out-of-memory killer struck {}", where_);
}

}  // namespace ranklink
