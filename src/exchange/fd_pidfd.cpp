// fd+pidfd: each rank takes the descriptor out of the peer's process by pidfd_getfd. It needs no
// socket between them for the memory itself, but the right to trace the peer.

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "exchange/mechanism.h"

namespace ranklink {
namespace {

constexpr std::size_t kUserNamespace = 5;  // in kNamespaceKinds
constexpr std::size_t kPidNamespace = 0;
constexpr std::uint64_t kSysPtrace = 1ull << 19;

constexpr const char* kAllow =
    "start the container with --cap-add SYS_PTRACE, or with a seccomp profile that allows "
    "pidfd_open and pidfd_getfd, or use fd+socket, which needs neither";

bool same_pid_namespace(const Facts& a, const Facts& b) {
  return a.namespaces[kPidNamespace] != 0 &&
         a.namespaces[kPidNamespace] == b.namespaces[kPidNamespace];
}

std::optional<Verdict> propose(const Party& from, const Party& to) {
  std::optional<Verdict> no;
  const auto refuse = [&](const Party& who, std::string cause, std::string remedy) {
    no = no_verdict(who.rank, std::move(cause), std::move(remedy));
    no->tried = false;
  };
  if (from.facts.boot_id != to.facts.boot_id) {
    refuse(from,
           fmt::format("the ranks are on different hosts ({}, {})", from.facts.hostname,
                       to.facts.hostname),
           "place the ranks on one host to share memory");
  } else if (from.facts.pidfd_getfd_errno == EPERM) {
    // EPERM on oneself can only come from a filter.
    refuse(from,
           fmt::format("a seccomp filter refuses pidfd_getfd at rank {} (EPERM on itself, "
                       "seccomp mode {})",
                       from.rank, from.facts.seccomp_mode),
           kAllow);
  } else if (from.facts.pidfd_getfd_errno != 0) {
    refuse(from,
           fmt::format("pidfd_getfd doesn't work at rank {}: {}", from.rank,
                       errno_text(from.facts.pidfd_getfd_errno)),
           "use Linux 5.6 or later and a seccomp profile that knows pidfd_getfd, or use fd+socket");
  } else if (const bool relayed = from.member.local && to.member.local; relayed) {
    if (to.facts.pidfd_open_errno != 0) {
      refuse(to,
             fmt::format("pidfd_open doesn't work at rank {}: {}", to.rank,
                         errno_text(to.facts.pidfd_open_errno)),
             kAllow);
    }
  } else if (!same_pid_namespace(from.facts, to.facts)) {
    refuse(from,
           fmt::format("rank {} is in another pid namespace than rank {}, and nothing passes "
                       "descriptors between them",
                       to.rank, from.rank),
           "share the pid namespace (--pid), or start the ranks with `ranklink run`");
  } else if (from.facts.pidfd_open_errno != 0) {
    refuse(from,
           fmt::format("pidfd_open doesn't work at rank {}: {}", from.rank,
                       errno_text(from.facts.pidfd_open_errno)),
           kAllow);
  }
  return no;
}

// ptrace(2), "Ptrace access mode checking", read from the facts of both sides.
Verdict explain_refusal(const Party& from, const Party& to, int error) {
  const std::string call = fmt::format("pidfd_getfd on rank {}: {}", to.rank, errno_text(error));
  const Facts& mine = from.facts;
  const Facts& other = to.facts;
  const auto no = [&](const std::string& why, std::string remedy) {
    return no_verdict(from.rank, fmt::format("{}; {}", call, why), std::move(remedy));
  };
  if (error != EPERM) return no_verdict(from.rank, call, "use fd+socket");
  if (mine.yama_scope > 0) {
    return no(fmt::format("Yama's ptrace_scope is {}, which allows it to {}", mine.yama_scope,
                          mine.yama_scope == 1   ? "ancestors only"
                          : mine.yama_scope == 2 ? "holders of CAP_SYS_PTRACE only"
                                                 : "nobody"),
              mine.yama_scope == 3 ? "use fd+socket (scope 3 can't be relaxed until reboot)"
                                   : "sysctl kernel.yama.ptrace_scope=0, or use fd+socket");
  }
  if (mine.namespaces[kUserNamespace] != other.namespaces[kUserNamespace]) {
    return no(
        fmt::format("rank {} is in another user namespace, which is not below this one", to.rank),
        "put both into one user namespace, or use fd+socket");
  }
  if (mine.uid != other.uid) {
    return no(fmt::format("rank {} runs as uid {}, this one as {}", to.rank, other.uid, mine.uid),
              "run both as one user, or give this rank CAP_SYS_PTRACE, or use fd+socket");
  }
  if (!other.dumpable) {
    return no(fmt::format("rank {} is not dumpable (it changed its credentials after it started)",
                          to.rank),
              "call prctl(PR_SET_DUMPABLE, 1) in it, or use fd+socket");
  }
  if ((mine.capabilities & kSysPtrace) == 0 && (other.capabilities & ~mine.capabilities) != 0) {
    return no(fmt::format("rank {} holds capabilities that this one doesn't", to.rank),
              "give both the same capabilities, or this one CAP_SYS_PTRACE, or use fd+socket");
  }
  return no("the kernel's ptrace policy refuses it", kAllow);
}

Fd open_self() { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))); }

// The peer by its number, checked by its start time: numbers are used again.
Fd open_peer(const Facts& peer) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!pidfd) throw system_error(fmt::format("pidfd_open of pid {}", peer.pid), errno, kAllow);
  if (process_start_time(peer.pid) != peer.start_time) {
    throw Error({.code = ErrorCode::mechanism_unavailable,
                 .cause = fmt::format("pid {} is another process here", peer.pid),
                 .remedy = "share the pid namespace and its /proc, or use fd+socket"});
  }
  return pidfd;
}

Attempt take(Surroundings& around, const Offer& offer, int peer, const Fd& pidfd) {
  const auto index = static_cast<std::size_t>(peer);
  Attempt attempt;
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.get(), offer.fd_numbers[index], 0)));
  if (!fd) {
    const int error = errno;
    attempt.no = error == EMFILE
                     ? no_verdict(around.rank(), system_error("pidfd_getfd", error))
                     : explain_refusal(around.party(around.rank()), around.party(peer), error);
    return attempt;
  }
  try {
    attempt.link.memory = around.device.import_fd(offer.handles[index], std::move(fd));
  } catch (const Error& error) {
    attempt.no = no_verdict(around.rank(), error);
  }
  return attempt;
}

Attempts connect(Surroundings& around, Circle&, const Offer& offer, const std::set<int>& importing,
                 const std::set<int>& exporting, Deadline deadline) {
  Attempts attempts;
  // A pidfd that its owner sends works across pid namespaces, where numbers mean nothing.
  std::vector<int> told;
  std::set<int> awaited;
  for (const int peer : exporting) {
    if (around.relayed(peer)) told.push_back(peer);
  }
  for (const int peer : importing) {
    if (around.relayed(peer)) awaited.insert(peer);
  }
  if (!told.empty()) {
    Fd self = open_self();
    around.client.post(around.trial, told,
                       self ? std::make_shared<const Fd>(std::move(self)) : nullptr);
  }
  around.client.collect(
      around.trial, awaited,
      [&](int peer, Fd pidfd, bool withheld) {
        if (pidfd) {
          attempts[peer] = take(around, offer, peer, pidfd);
          return;
        }
        const int at_limit = withheld ? peer : around.rank();
        attempts[peer].no = no_verdict(
            at_limit,
            fmt::format("rank {} is at its limit of {} open files and {} a pidfd", at_limit,
                        around.party(at_limit).facts.descriptors_soft,
                        withheld ? "could not open" : "the kernel dropped"),
            "raise that rank's limit of open files (ulimit -n, LimitNOFILE=, --ulimit nofile)");
      },
      deadline);
  for (const int peer : importing) {
    if (around.relayed(peer)) continue;
    try {
      attempts[peer] = take(around, offer, peer, open_peer(around.party(peer).facts));
    } catch (const Error& error) {
      attempts[peer].no = no_verdict(around.rank(), error);
    }
  }
  return attempts;
}

}  // namespace

const Mechanism kFdPidfd = {"fd+pidfd", true, propose, connect};

}  // namespace ranklink
