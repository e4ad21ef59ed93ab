// fd+socket: each rank sends the descriptor of its memory over a Unix socket. It needs no
// permission over the peer's process, and works across all kinds of namespace.

#include <fmt/format.h>
#include <poll.h>

#include "base/socket.h"
#include "exchange/mechanism.h"

namespace ranklink {
namespace {

constexpr Milliseconds kSlice{20};

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

void by_pair_sockets(Surroundings& around, const Offer& offer, std::set<int> importing,
                     const std::set<int>& exporting, Deadline deadline, Attempts& attempts) {
  for (const int peer : importing) {
    if (around.pair_sockets[peer].connection) continue;
    attempts[peer].no =
        no_verdict(around.rank(),
                   fmt::format("ranks {} and {} have no directory in common for a socket file: {}",
                               around.rank(), peer, around.pair_sockets[peer].cause),
                   "give both a directory that they share, and name it in RANKLINK_SOCKET_DIR, or "
                   "start them with `ranklink run`");
  }
  std::erase_if(importing, [&](int peer) { return attempts.contains(peer); });
  for (const int peer : exporting) {
    auto& connection = around.pair_sockets[peer].connection;
    if (!connection) continue;
    connection->send(FrameType::post, Posting{around.trial, {peer}}.encode(),
                     {borrow_fd(around.device.export_fd(*offer.memory))});
  }
  const auto unsent = [&] {
    for (const int peer : exporting) {
      const auto& connection = around.pair_sockets[peer].connection;
      if (connection && connection->wants_write()) return true;
    }
    return false;
  };
  while (!importing.empty() || unsent()) {
    around.client.check();
    if (deadline.passed()) {
      for (const int peer : importing) {
        attempts[peer].no = no_verdict(around.rank(), "no descriptor came before the deadline",
                                       "look at the output of that rank");
      }
      return;
    }
    std::vector<pollfd> polls;
    for (auto& [peer, met] : around.pair_sockets) {
      if (!met.connection) continue;
      met.connection->flush();
      polls.push_back({met.connection->fd(), POLLIN, 0});
    }
    ::poll(polls.data(), polls.size(), deadline.poll_ms(kSlice));
    for (auto it = importing.begin(); it != importing.end();) {
      FrameConnection& connection = *around.pair_sockets[*it].connection;
      auto frame = connection.receive();
      if (!frame && !connection.closed()) {
        ++it;
        continue;
      }
      if (!frame) {
        attempts[*it].no = no_verdict(around.rank(), "the peer closed the connection",
                                      "look at the output of that rank");
      } else {
        attempts[*it] =
            import(around, offer, *it, frame->fds.empty() ? Fd() : std::move(frame->fds.front()));
      }
      it = importing.erase(it);
    }
  }
}

Attempts connect(Surroundings& around, const Offer& offer, const std::set<int>& importing,
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
  by_pair_sockets(around, offer, of_kind(importing, false), of_kind(exporting, false), deadline,
                  attempts);
  return attempts;
}

}  // namespace

const Mechanism kFdSocket = {"fd+socket", true, propose, connect};

}  // namespace ranklink
