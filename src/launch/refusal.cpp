#include "launch/refusal.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "inspect/facts.h"
#include "inspect/files.h"

namespace ranklink {
namespace {

bool is_filtered() { return field(read_text("/proc/self/status"), "Seccomp:") == "2"; }

// "kernel.x" of /proc/sys below `root`.
std::string sysctl(const std::string& root, std::string name) {
  for (char& c : name) {
    if (c == '.') c = '/';
  }
  return read_text(root + "proc/sys/" + name);
}

Error isolation_refused(int rank, std::string_view call, int error, const Isolation& isolation) {
  return Error(
      {.code = ErrorCode::isolation_refused,
       .rank = rank,
       .step = "spawn",
       .cause = fmt::format("{} for namespaces {}: {}", call, isolation.text(), errno_text(error)),
       .remedy = isolation_remedy("/", error, isolation, is_filtered())});
}

std::string_view call_of(ChildStep step) {
  switch (step) {
    case ChildStep::parent_gone:
      return "the launcher has ended";
    case ChildStep::process_group:
      return "setpgid";
    case ChildStep::user_map:
      return "write /proc/self/uid_map and gid_map";
    case ChildStep::loopback:
      return "bring lo up";
    case ChildStep::hostname:
      return "sethostname";
    case ChildStep::private_mounts:
      return "mount / private";
    case ChildStep::shm:
      return "mount tmpfs on /dev/shm";
    case ChildStep::streams:
      return "dup2 of standard streams";
    case ChildStep::descriptors:
      return "dup2 of inherited sockets";
    case ChildStep::limits:
      return "setrlimit NOFILE";
    case ChildStep::signals:
      return "sigprocmask";
    case ChildStep::exec:
      return "execvp";
  }
  return "";
}

bool is_about_isolation(ChildStep step) {
  return step >= ChildStep::user_map && step <= ChildStep::shm;
}

std::string exec_remedy(int error, const std::string& program) {
  const bool is_path = program.find('/') != std::string::npos;
  switch (error) {
    case ENOENT:
      return is_path ? "check the path; for a script, also the interpreter that its #! line names"
                     : "it is in no directory of PATH: install it, or give its path";
    case EACCES:
      return fmt::format(
          "make it executable (chmod +x), let this user reach its directory, or "
          "start it by its interpreter, as in: python3 {}",
          program);
    case ENOEXEC:
      return "it was built for another kind of machine, or lacks a #! line";
    case E2BIG:
      return "the arguments and the environment are too long together: shorten them";
    case ENOTDIR:
      return "a part of the path is a file and not a directory";
    default:
      return "try to start it without ranklink";
  }
}

}  // namespace

std::string isolation_remedy(const std::string& root, int error, const Isolation& isolation,
                             bool filtered) {
  constexpr std::string_view kElse = ", or run without --isolate";
  if (error == ENOSPC || error == EUSERS) {
    std::vector<std::string> limits;
    for (const std::string_view kind : kNamespaceKinds) {
      if (!isolation.has(kind)) continue;
      const std::string name = fmt::format("user.max_{}_namespaces", kind);
      const std::string value = sysctl(root, name);
      if (!value.empty()) limits.push_back(fmt::format("{} (now {})", name, value));
    }
    return fmt::format("raise by sysctl -w: {}{}", fmt::join(limits, ", "), kElse);
  }
  if (error == EINVAL) {
    return fmt::format("this kernel was built without one of these kinds{}", kElse);
  }
  if (isolation.has("user")) {
    if (sysctl(root, "kernel.unprivileged_userns_clone") == "0") {
      return fmt::format("sysctl -w kernel.unprivileged_userns_clone=1, or run as root{}", kElse);
    }
    if (sysctl(root, "user.max_user_namespaces") == "0") {
      return fmt::format("raise by sysctl -w: user.max_user_namespaces (now 0), or run as root{}",
                         kElse);
    }
    // Here the kernel grants the namespace and then refuses what it is for.
    if (sysctl(root, "kernel.apparmor_restrict_unprivileged_userns") == "1") {
      return fmt::format(
          "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this program an "
          "AppArmor profile with the rule 'userns,', or run as root{}",
          kElse);
    }
  }
  if (filtered) {
    return fmt::format(
        "the container's seccomp profile refuses it: start the container with --cap-add "
        "SYS_ADMIN or --security-opt seccomp=unconfined{}",
        kElse);
  }
  return fmt::format("run as root, with the capability CAP_SYS_ADMIN{}", kElse);
}

Error clone_refused(int rank, int error, const Isolation& isolation) {
  if (error == EMFILE || error == ENFILE) return system_error("clone of a rank", error);
  const bool refusal =
      error == EPERM || error == ENOSPC || error == EINVAL || error == EUSERS || error == EACCES;
  if (isolation.any() && refusal) return isolation_refused(rank, "clone", error, isolation);
  std::string remedy = "a kernel from 5.3 on is needed";
  if (error == EAGAIN) {
    remedy = "the limit of processes is reached: raise ulimit -u, or pids.max of the cgroup";
  } else if (error == ENOMEM) {
    remedy = "free memory, or start fewer ranks";
  }
  return Error({.code = ErrorCode::program_unstartable,
                .rank = rank,
                .step = "spawn",
                .cause = fmt::format("clone: {}", errno_text(error)),
                .remedy = std::move(remedy)});
}

Error child_failed(const ChildFailure& failure, const std::string& program,
                   const Isolation& isolation) {
  if (is_about_isolation(failure.step)) {
    return isolation_refused(failure.rank, call_of(failure.step), failure.error, isolation);
  }
  if (failure.step == ChildStep::descriptors) {
    return with(system_error(call_of(failure.step), EMFILE),
                [&](Error::Parts& parts) { parts.rank = failure.rank; });
  }
  const bool exec = failure.step == ChildStep::exec;
  return Error(
      {.code = ErrorCode::program_unstartable,
       .rank = failure.rank,
       .step = "spawn",
       .cause = exec ? fmt::format("execvp {}: {}", program, errno_text(failure.error))
                     : fmt::format("{}: {}", call_of(failure.step), errno_text(failure.error)),
       .remedy = exec ? exec_remedy(failure.error, program)
                      : "check the limits of this process (ulimit -a)"});
}

}  // namespace ranklink
