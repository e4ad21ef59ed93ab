#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"

namespace ranklink {

/// Endpoints are written as users write them: `tcp://HOST:PORT`, `tcp://[V6]:PORT`, `unix:///PATH`.

/// Throws Error(setting_invalid) for text that is none, Error(rendezvous_unreachable) otherwise.
Fd connect_endpoint(const std::string& endpoint, Deadline deadline);
/// Throws Error(setting_invalid) for text that is none, and for port 0 (see add_tcp_listener);
/// Error(rendezvous_unusable) otherwise.
Fd listen_endpoint(const std::string& endpoint);

/// A listener and the endpoints by which it is reached; a socket file goes with it.
struct Listening {
  std::vector<Fd> listeners;
  std::vector<std::string> endpoints;
  std::vector<std::string> files;  ///< socket files to remove

  Listening() = default;
  Listening(Listening&&) = default;
  Listening& operator=(Listening&& other) noexcept;
  ~Listening();
};

/// Directories for socket files that exist here, best first: RANKLINK_SOCKET_DIR (`preferred`),
/// NVIDIA_DRA_LOCAL_IPC_DIR, XDG_RUNTIME_DIR, TMPDIR, /dev/shm. Whether a peer sees the same one,
/// only connecting shows.
std::vector<std::string> socket_directories(const std::string& preferred);

/// Listens on a socket file of random name in `directory`. Throws Error.
void add_unix_listener(Listening& to, const std::string& directory);
/// Listens on a free port of `host` (empty: all addresses), reached at each of `addresses`.
void add_tcp_listener(Listening& to, const std::string& host,
                      const std::vector<std::string>& addresses);

/// Addresses of this host's interfaces, loopback last; at most `limit`.
std::vector<std::string> host_addresses(std::size_t limit);

}  // namespace ranklink
