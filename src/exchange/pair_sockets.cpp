#include "exchange/pair_sockets.h"

#include <fmt/format.h>
#include <poll.h>

namespace ranklink {
namespace {

constexpr Milliseconds kSlice{20};

FrameConnection* connection_to(Surroundings& around, int peer) {
  auto& connection = around.pair_sockets[peer].connection;
  return connection ? &*connection : nullptr;
}

}  // namespace

void pass_by_pair_sockets(Surroundings& around, const std::map<int, SharedFd>& sending,
                          std::set<int> awaited, const TakeFd& take, Deadline deadline) {
  for (auto it = awaited.begin(); it != awaited.end();) {
    if (connection_to(around, *it) != nullptr) {
      ++it;
      continue;
    }
    take(*it, Fd(),
         no_verdict(around.rank(),
                    fmt::format("ranks {} and {} have no directory in common for a socket file: {}",
                                around.rank(), *it, around.pair_sockets[*it].cause),
                    "give both a directory that they share, and name it in RANKLINK_SOCKET_DIR, or "
                    "start them with `ranklink run`"));
    it = awaited.erase(it);
  }
  for (const auto& [peer, fd] : sending) {
    if (FrameConnection* connection = connection_to(around, peer)) {
      connection->send(FrameType::post, Posting{around.trial, {peer}}.encode(), {fd});
    }
  }
  const auto unsent = [&] {
    for (const auto& [peer, fd] : sending) {
      const FrameConnection* connection = connection_to(around, peer);
      if (connection != nullptr && connection->wants_write()) return true;
    }
    return false;
  };
  while (!awaited.empty() || unsent()) {
    around.client.check();
    if (deadline.passed()) {
      for (const int peer : awaited) {
        take(peer, Fd(),
             no_verdict(around.rank(), "no descriptor came before the deadline",
                        "look at the output of that rank"));
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
    for (auto it = awaited.begin(); it != awaited.end();) {
      FrameConnection& connection = *connection_to(around, *it);
      auto frame = connection.receive();
      if (!frame && !connection.closed()) {
        ++it;
        continue;
      }
      if (!frame) {
        take(*it, Fd(),
             no_verdict(around.rank(), "the peer closed the connection",
                        "look at the output of that rank"));
      } else {
        take(*it, frame->fds.empty() ? Fd() : std::move(frame->fds.front()), std::nullopt);
      }
      it = awaited.erase(it);
    }
  }
}

}  // namespace ranklink
