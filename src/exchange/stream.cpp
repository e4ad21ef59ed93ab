// stream: no memory is shared; a socket between the two ranks carries what is put.

#include <fmt/format.h>

#include "exchange/mechanism.h"

namespace ranklink {
namespace {

std::optional<Verdict> propose(const Party&, const Party&) { return std::nullopt; }

Attempts connect(Surroundings& around, const Offer&, const std::set<int>& importing,
                 const std::set<int>&, Deadline deadline) {
  Attempts attempts;
  std::set<int> brokered;
  std::set<int> met_peers;
  for (const int peer : importing) (around.relayed(peer) ? brokered : met_peers).insert(peer);
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
            attempts[peer].no = no_verdict(
                around.rank(),
                fmt::format("rank {} is at its limit of open files and could not take the stream",
                            around.rank()),
                "raise the limit of open files (ulimit -n, LimitNOFILE=, --ulimit nofile)");
          }
        },
        deadline);
  }
  if (around.all_local) return attempts;
  auto met = around.meeting.meet(around.ranks, met_peers, Meeting::Reach::all, deadline);
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
