#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/fd.h"
#include "route/segment.h"

namespace ranklink {

/// A way to write into one peer's segment. Puts and signals of one route arrive in their order.
class Route {
 public:
  virtual ~Route() = default;

  /// Writes `bytes` at `offset` of the peer's segment. False when the route has no room now: the
  /// caller makes progress elsewhere and calls again with what `done` says is left.
  virtual bool put(std::size_t offset, ByteView bytes, std::size_t& done) = 0;
  /// Stores `value` in the word at `offset` of the peer's segment, after all puts before it.
  virtual bool signal(std::size_t offset, std::uint32_t value) = 0;

  /// For a route over a socket: applies what has come from the peer to this rank's own segment.
  virtual void receive() {}
  /// The socket; -1 where there is none, or none any more.
  virtual int fd() const { return -1; }
  /// The peer's end is closed: nothing more comes. That is an error only for who still waits.
  virtual bool closed() const { return false; }
};

/// By load and store, on a peer's segment that is mapped here. The memory is its owner's business.
/// Where the peer answers over a stream, `incoming` is that stream, and only received from.
std::unique_ptr<Route> make_mapped_route(std::byte* peer_segment,
                                         std::unique_ptr<Route> incoming = nullptr);

/// By messages over a connected socket, both ways. `own` is this rank's segment, of `own_bytes`;
/// `peer` is only for error texts.
std::unique_ptr<Route> make_stream_route(Fd socket, std::byte* own, std::size_t own_bytes,
                                         int peer);

}  // namespace ranklink
