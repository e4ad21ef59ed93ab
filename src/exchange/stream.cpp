// stream: no memory is shared; a socket between the two ranks carries what is put.

#include <fmt/format.h>

#include "base/socket.h"
#include "exchange/mechanism.h"
#include "exchange/pair_sockets.h"

namespace ranklink {
namespace {

std::optional<Verdict> propose(const Party&, const Party&) { return std::nullopt; }

Verdict at_limit(const Surroundings& around) {
  return no_verdict(
      around.rank(),
      fmt::format("rank {} is at its limit of open files and could not take the stream",
                  around.rank()),
      "raise the limit of open files (ulimit -n, LimitNOFILE=, --ulimit nofile)");
}

// The lower rank of a pair makes the stream and sends the other its end.
void by_pair_sockets(Surroundings& around, const std::set<int>& peers, Deadline deadline,
                     Attempts& attempts) {
  std::map<int, SharedFd> sending;
  std::set<int> awaited;
  for (const int peer : peers) {
    if (peer < around.rank()) {
      awaited.insert(peer);
      continue;
    }
    auto [mine, theirs] = make_socketpair();
    attempts[peer].link = {.memory = nullptr, .stream = std::move(mine), .how = "unix"};
    sending[peer] = std::make_shared<const Fd>(std::move(theirs));
  }
  pass_by_pair_sockets(
      around, sending, awaited,
      [&](int peer, Fd fd, std::optional<Verdict> no) {
        if (!fd && !no) no = at_limit(around);
        attempts[peer].no = std::move(no);
        attempts[peer].link = {.memory = nullptr, .stream = std::move(fd), .how = "unix"};
      },
      deadline);
}

Attempts connect(Surroundings& around, Circle& circle, const Offer&, const std::set<int>& importing,
                 const std::set<int>&, Deadline deadline) {
  Attempts attempts;
  std::set<int> brokered;
  std::set<int> met_peers;
  std::set<int> passed;
  for (const int peer : importing) {
    const bool met = around.pair_sockets[peer].connection.has_value();
    (around.relayed(peer) ? brokered : met ? passed : met_peers).insert(peer);
  }
  // The rendezvous holds both ends of each stream for a moment, so all ranks ask for a few at a
  // time, in an order in which both ends of a pair ask together: by their distance.
  const int size = around.size();
  for (int distance = 1; distance <= size / 2; ++distance) {
    std::set<int> now;
    for (const int peer : {around.rank() + distance, around.rank() - distance + size}) {
      if (brokered.contains(peer % size)) now.insert(peer % size);
    }
    if (now.empty()) continue;
    around.client.broker(around.trial, {now.begin(), now.end()});
    around.client.collect(
        around.trial, now,
        [&](int peer, Fd fd, bool) {
          if (fd) {
            attempts[peer].link = {.memory = nullptr, .stream = std::move(fd), .how = "brokered"};
          } else {
            attempts[peer].no = at_limit(around);
          }
        },
        deadline);
  }
  if (around.all_local) return attempts;
  by_pair_sockets(around, passed, deadline, attempts);
  auto met = around.meeting.meet(circle, around.ranks, met_peers, Meeting::Reach::all, deadline);
  for (const int peer : met_peers) {
    Met& mine = met[peer];
    if (mine.connection) {
      attempts[peer].link = {.memory = nullptr,
                             .stream = mine.connection->take_fd(),
                             .how = mine.how.starts_with("unix") ? "unix" : "tcp"};
    } else {
      attempts[peer].no = no_verdict(
          around.rank(), mine.cause,
          "let the ranks reach each other by TCP, or by a shared directory (RANKLINK_SOCKET_DIR)");
    }
  }
  return attempts;
}

}  // namespace

const Mechanism kStream = {"stream", false, propose, connect};

}  // namespace ranklink
