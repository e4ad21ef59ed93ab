#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/fd.h"

namespace ranklink {

/// The frames that ranks and the rendezvous server exchange. Numbers are never reused.
enum class FrameType : std::uint16_t {
  challenge = 1,  ///< server: a nonce
  hello = 2,      ///< rank: a nonce and its proof
  proof = 3,      ///< server: its proof
  refusal = 4,    ///< server: why it closes
  claim = 5,      ///< rank: who it is
  seated = 6,     ///< server: all ranks are there
  submit = 7,     ///< rank: its row of a round
  result = 8,     ///< server: what the round gave
  abort = 9,      ///< server: the job failed, and why
  fail = 10,      ///< rank: it can't go on, and why
  goodbye = 11,   ///< rank: it leaves as intended
  left = 12,      ///< server: a rank has left
  post = 13,      ///< rank: a descriptor for some peers
  broker = 14,    ///< rank: wants a stream to some peers
  pass = 15,      ///< descriptors from peers
  pass_ack = 16,  ///< how many of them arrived
  meet = 17,      ///< first frame of a connection between two ranks
  meet_ack = 18,  ///< its answer
};

struct Frame {
  FrameType type{};
  Bytes payload;
  std::vector<Fd> fds;
  std::size_t fds_announced = 0;  ///< how many the sender put with it; fewer arrive at a limit
};

using SharedBytes = std::shared_ptr<const Bytes>;
using SharedFd = std::shared_ptr<const Fd>;
/// A descriptor that somebody else owns and keeps open until it has been sent.
SharedFd borrow_fd(int fd);

/// The 16 bytes before each payload.
struct FrameHeader {
  FrameType type{};
  std::uint32_t length = 0;
  std::uint16_t fds = 0;
};
inline constexpr std::size_t kFrameHeaderSize = 16;
/// The most that a stranger may send in one frame, and a rank.
inline constexpr std::size_t kStrangerLimit = 512;
inline constexpr std::size_t kRankLimit = 64u << 20;

Bytes encode_header(const FrameHeader& header);
/// Throws Error(protocol_violation): wrong magic, unknown type, longer than `limit`.
FrameHeader decode_header(ByteView bytes, std::size_t limit);

/// A non-blocking connection that carries frames, with descriptors where it is a Unix socket.
class FrameConnection {
 public:
  explicit FrameConnection(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// All that the peer sent has been received, and no more can come.
  bool closed() const { return closed_; }
  /// Frames longer than this are refused; kStrangerLimit until told otherwise.
  void set_limit(std::size_t limit) { limit_ = limit; }

  /// Queues a frame and sends what fits now.
  void send(FrameType type, SharedBytes payload, std::vector<SharedFd> fds = {});
  void send(FrameType type, Bytes payload = {}, std::vector<SharedFd> fds = {});
  /// Sends more of the queue.
  void flush();
  /// Sends the queue, or what of it can be sent until then.
  void flush_until(Deadline deadline);
  bool wants_write() const { return !queue_.empty(); }

  /// Hands the socket over, for use without frames; nothing may be queued.
  Fd take_fd() { return std::move(fd_); }

  /// The next whole frame that has arrived, if any. Throws Error(protocol_violation).
  std::optional<Frame> receive();

 private:
  struct Outgoing {
    SharedBytes bytes;
    std::size_t sent = 0;
    std::vector<SharedFd> fds;
  };

  Fd fd_;
  bool closed_ = false;
  bool deaf_ = false;  ///< the peer receives no more; what it sent before may still be read
  std::size_t limit_ = kStrangerLimit;
  std::deque<Outgoing> queue_;
  Bytes buffer_;  // of the header, then of the payload, being received
  std::size_t filled_ = 0;
  std::optional<FrameHeader> header_;  // of the payload being received
  std::vector<Fd> received_fds_;
};

}  // namespace ranklink
