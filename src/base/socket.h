#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/fd.h"

namespace ranklink {

/// All sockets made here are non-blocking and close-on-exec; every wait is bounded.

std::pair<Fd, Fd> make_socketpair();

/// Listens on a numeric address or a name that resolves; port 0 lets the kernel choose. An empty
/// host means all addresses, IPv6 and IPv4. Throws Error(rendezvous_unusable), which names the
/// holder's cause.
Fd listen_tcp(const std::string& host, std::uint16_t port);
/// Binds a socket file of any length of path, and makes it connectable for every uid (who may join
/// is decided by the secret). The file must not exist. Throws Error.
Fd listen_unix(const std::string& path);
/// Accepts one connection if one waits; an empty Fd if none does. Throws Error(descriptors_short)
/// when one waits that this process has no descriptor for.
Fd accept_one(int listener);

/// Throw Error(rendezvous_unreachable) with the kernel's answer, or when the deadline passes.
Fd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);
Fd connect_unix(const std::string& path, Deadline deadline);

/// Addresses of a connected TCP socket's two ends, numeric; empty for other sockets.
std::string local_ip(int fd);
std::string peer_ip(int fd);
std::uint16_t local_port(int fd);

enum class Io { some, would_block, closed };

/// Sends what fits of `bytes`, and `fds` (at most 253) with the first of them. `sent` tells how
/// much went. Errors that mean a broken connection read as closed; ETOOMANYREFS (too many
/// descriptors in flight) reads as would_block. Others throw.
Io send_some(int fd, ByteView bytes, const std::vector<int>& fds, std::size_t& sent);

/// Receives at most `into.size()` bytes, and appends descriptors to `fds`. `dropped` is set when
/// the kernel had to drop descriptors because this process is at its limit.
Io receive_some(int fd, std::span<std::byte> into, std::vector<Fd>& fds, std::size_t& received,
                bool& dropped);

/// True when `fd` has one of `events` (POLLIN, POLLOUT), false when the wait ended without.
bool wait_for(int fd, short events, Deadline deadline, Milliseconds slice = Milliseconds(60'000));

/// Splits `host:port`, `[v6]:port`. Throws Error(setting_invalid).
std::pair<std::string, std::uint16_t> split_host_port(const std::string& text);
std::string join_host_port(const std::string& host, std::uint16_t port);

}  // namespace ranklink
