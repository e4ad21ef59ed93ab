#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/secret.h"
#include "rendezvous/control_page.h"

namespace ranklink {

/// What every rank handed in for one round becomes what every rank is given back. Runs in the
/// server's thread; an Error it throws ends the job for all ranks.
using Reducer = std::function<Bytes(std::string_view round, const std::vector<Bytes>& rows)>;

/// The meeting point of one job: proves the secret, seats the ranks, runs rounds in which all of
/// them exchange bytes, passes descriptors between them, and tells all of them when one fails.
/// Knows nothing of devices. Runs a thread of its own; its methods are thread-safe.
class Server {
 public:
  struct Options {
    Secret secret;
    std::optional<int> size;      ///< where it isn't known, the first claim sets it
    std::vector<Fd> listeners;    ///< TCP or Unix
    std::vector<Fd> connections;  ///< inherited sockets, by rank
    std::vector<int> pids;        ///< of the ranks' processes, where the launcher knows them
    Reducer reduce;
    bool reports_ends = false;  ///< somebody calls report_end for every rank that ends
  };

  explicit Server(Options options);
  /// Closes everything; ranks that are still connected see the rendezvous lost.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// A rank's process has ended, and this is how: a primary reason if it hadn't left the group.
  /// `reason` names the rank; the server adds the step it was in.
  void report_end(int rank, const Error& reason);
  /// Ends the job for all ranks.
  void abort(const Error& reason);
  /// The reason that the job failed, once there is one.
  std::optional<Error> failure() const;
  /// The page that ranks of this host share, which came by TCP and so couldn't be given the
  /// server's.
  void use_page(ControlPage page);
  /// What a rank that crashes could say of it before it ended.
  std::optional<Crash> crash_of(int rank) const;
  /// The step that a rank is in, or was in when it ended; empty before it has joined.
  std::string step_of(int rank) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranklink
