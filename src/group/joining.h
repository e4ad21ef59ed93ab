#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/secret.h"
#include "base/settings.h"
#include "ranklink/options.hpp"
#include "rendezvous/endpoint.h"
#include "rendezvous/frame.h"
#include "rendezvous/server.h"

namespace ranklink {

/// A rendezvous server in this process, with what it listens on. In a process that was forked
/// after it was made it is nothing: its thread isn't there, and its socket files are the parent's.
struct HostedServer {
  pid_t owner = ::getpid();
  Listening listening;
  std::unique_ptr<Server> server;  ///< ends first

  HostedServer() = default;
  HostedServer(const HostedServer&) = delete;
  HostedServer& operator=(const HostedServer&) = delete;
  ~HostedServer();
};

/// A server at these listeners, with the coordinator behind it.
std::unique_ptr<Server> start_server(std::vector<Fd> listeners, const Secret& secret,
                                     std::optional<int> size);

/// How this process got to the rendezvous.
struct Joined {
  FrameConnection connection;
  Secret secret;
  bool launched = false;                 ///< by a launcher that serves the rendezvous
  std::shared_ptr<HostedServer> hosted;  ///< if this rank serves it
};

/// Rank and number of ranks, from the options, else from RANK and WORLD_SIZE. Throws
/// Error(bad_argument).
struct Place {
  int rank = 0;
  int size = 1;
};
Place find_place(const Options& options);

/// Finds the rendezvous, in this order: the options' unique id or store, the launcher, the setting
/// RANKLINK_RENDEZVOUS, MASTER_ADDR and MASTER_PORT; opens it where that is rank 0's part;
/// connects, and proves the secret.
Joined find_rendezvous(const Options& options, const Settings& settings, const Place& place,
                       Deadline deadline);

}  // namespace ranklink
