#include "launch/strays.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>

#include "inspect/files.h"

namespace ranklink {
namespace {

// Children of all threads of this process, from /proc.
std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  while (const dirent* task = tasks ? ::readdir(tasks.get()) : nullptr) {
    if (task->d_name[0] == '.') continue;
    std::ifstream file(fmt::format("/proc/self/task/{}/children", task->d_name));
    for (pid_t pid; file >> pid;) children.push_back(pid);
  }
  return children;
}

bool contains(const std::vector<pid_t>& list, pid_t pid) {
  return std::find(list.begin(), list.end(), pid) != list.end();
}

}  // namespace

StrayKeeper::StrayKeeper() {
  // A /proc of another pid namespace speaks of other processes by these numbers.
  if (read_link("/proc/self") != std::to_string(::getpid())) return;
  if (::access(fmt::format("/proc/self/task/{}/children", ::getpid()).c_str(), R_OK) != 0) return;
  if (::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_, 0, 0, 0) != 0) return;
  before_ = list_children();
  active_ = ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

StrayKeeper::~StrayKeeper() {
  if (active_) ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_, 0, 0, 0);
}

std::vector<pid_t> StrayKeeper::strays(const std::vector<pid_t>& ranks) const {
  if (!active_) return {};
  std::vector<pid_t> children = list_children();
  std::erase_if(children,
                [&](pid_t pid) { return contains(before_, pid) || contains(ranks, pid); });
  return children;
}

std::size_t StrayKeeper::reap(const std::vector<pid_t>& ranks) {
  std::size_t left = 0;
  for (const pid_t pid : strays(ranks)) {
    if (::waitpid(pid, nullptr, WNOHANG) != pid) ++left;
  }
  return left;
}

void StrayKeeper::end(const std::vector<pid_t>& ranks, Deadline deadline) {
  while (reap(ranks) > 0 && !deadline.passed()) {
    for (const pid_t pid : strays(ranks)) ::kill(pid, SIGKILL);
    const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace ranklink
