// fd+socket: each rank sends the descriptor of its memory over a Unix socket. It needs no
// permission over the peer's process, and works across all kinds of namespace.

#include <fmt/format.h>

#include "exchange/mechanism.h"
#include "exchange/pair_sockets.h"

namespace ranklink {
namespace {

std::optional<Verdict> propose(const Party& from, const Party& to) {
  if (from.facts.boot_id == to.facts.boot_id || from.facts.boot_id.empty()) return std::nullopt;
  Verdict no = no_verdict(from.rank,
                          fmt::format("the ranks are on different hosts ({}, {})",
                                      from.facts.hostname, to.facts.hostname),
                          "place the ranks on one host to share memory");
  no.tried = false;
  return no;
}

Verdict dropped(const Surroundings& around) {
  const Facts& facts = around.party(around.rank()).facts;
  return no_verdict(around.rank(),
                    fmt::format("the kernel dropped the descriptor that arrived: rank {} is at its "
                                "limit of {} open files",
                                around.rank(), facts.descriptors_soft),
                    "raise that rank's limit of open files (ulimit -n, LimitNOFILE=, --ulimit "
                    "nofile)");
}

Attempt import(Surroundings& around, const Offer& offer, int peer, Fd fd) {
  Attempt attempt;
  if (!fd) {
    attempt.no = dropped(around);
    return attempt;
  }
  try {
    attempt.link.memory =
        around.device.import_fd(offer.handles[static_cast<std::size_t>(peer)], std::move(fd));
  } catch (const Error& error) {
    attempt.no = no_verdict(around.rank(), error);
  }
  return attempt;
}

void by_relay(Surroundings& around, const Offer& offer, const std::set<int>& importing,
              const std::set<int>& exporting, Deadline deadline, Attempts& attempts) {
  if (!exporting.empty()) {
    around.client.post(around.trial, {exporting.begin(), exporting.end()},
                       borrow_fd(around.device.export_fd(*offer.memory)));
  }
  around.client.collect(
      around.trial, importing,
      [&](int peer, Fd fd, bool) { attempts[peer] = import(around, offer, peer, std::move(fd)); },
      deadline);
}

Attempts connect(Surroundings& around, Circle&, const Offer& offer, const std::set<int>& importing,
                 const std::set<int>& exporting, Deadline deadline) {
  const auto of_kind = [&](const std::set<int>& peers, bool relayed) {
    std::set<int> some;
    for (const int peer : peers) {
      if (around.relayed(peer) == relayed) some.insert(peer);
    }
    return some;
  };
  Attempts attempts;
  by_relay(around, offer, of_kind(importing, true), of_kind(exporting, true), deadline, attempts);
  std::map<int, SharedFd> sending;
  for (const int peer : of_kind(exporting, false)) {
    sending[peer] = borrow_fd(around.device.export_fd(*offer.memory));
  }
  pass_by_pair_sockets(
      around, sending, of_kind(importing, false),
      [&](int peer, Fd fd, std::optional<Verdict> no) {
        if (no) {
          attempts[peer].no = std::move(no);
        } else {
          attempts[peer] = import(around, offer, peer, std::move(fd));
        }
      },
      deadline);
  return attempts;
}

}  // namespace

const Mechanism kFdSocket = {"fd+socket", true, propose, connect};

}  // namespace ranklink
