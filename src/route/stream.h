#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/socket.h"

namespace ranklink {

/// Messages to and from one peer over a connected socket, with credits: what segments and inboxes
/// are to ranks that share memory. Never waits.
class Stream {
 public:
  struct Message {
    std::uint32_t tag = 0;
    std::uint32_t size = 0;
    Bytes data;  ///< of at least `size` bytes
  };

  /// Both sides count messages after `sequence` and send at most `max_message` bytes in one. `peer`
  /// is only for error texts.
  Stream(Fd socket, std::size_t max_message, std::uint32_t sequence, int peer);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  /// Sends a message. False when the socket takes no more now: the caller receives, and calls again
  /// with the same message, whose sent part `done` remembers.
  bool send(std::uint32_t tag, ByteView data, std::size_t& done);
  /// Tells the peer how many of its messages this rank has consumed. False if the socket takes
  /// nothing now: call again later. A peer that has gone needs no credit.
  bool send_credit(std::uint32_t consumed);
  /// Tells the peer how many long messages this rank has made itself ready for; as above.
  bool send_grants(std::uint32_t grants);

  /// Sends what a call of these two has left.
  void send_rest();

  /// Takes what has come. Throws Error(protocol_violation).
  void receive();
  /// The oldest message that is here whole and not consumed, or null.
  const Message* front() const;
  void pop();
  /// How many of this rank's messages the peer has consumed.
  std::uint32_t credit() const { return credit_; }
  std::uint32_t grants() const { return grants_; }

  /// POLLOUT while something waits to be sent, else 0.
  short wanted() const;
  int fd() const { return closed_ ? -1 : socket_.get(); }
  /// The peer's end is closed: nothing more comes. That is an error only for who still waits.
  bool closed() const { return closed_; }

 private:
  void linger();
  [[noreturn]] void violated(const char* what) const;
  Io flush();
  bool send_word(std::uint32_t kind, std::uint32_t value);
  void queue_head(std::uint32_t kind, std::uint32_t tag, std::uint32_t value);
  bool fill(std::span<std::byte> into, std::size_t& filled);
  void take_head();

  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::size_t kHeadBytes = 12;

  Fd socket_;
  std::size_t max_message_;
  int peer_;
  bool closed_ = false;

  // What is to be sent before anything else: heads, with the beginning of a message.
  std::array<std::byte, 4096> out_;
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
  bool in_message_ = false;
  std::uint32_t credit_;
  std::uint32_t grants_;

  // Received and not yet looked at.
  std::array<std::byte, 4096> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  std::array<Message, kSlots> slots_;
  std::uint32_t received_ = 0;  // messages that came whole, by number
  std::uint32_t consumed_ = 0;
  bool in_data_ = false;  // the next bytes are of a message
  std::size_t data_got_ = 0;
};

}  // namespace ranklink
