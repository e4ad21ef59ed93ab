#include "route/stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/deadline.h"
#include "base/log.h"
#include "route/segment.h"

namespace ranklink {
namespace {

constexpr std::uint32_t kMessage = 1;
constexpr std::uint32_t kCredit = 2;
constexpr std::uint32_t kGrants = 3;
constexpr Milliseconds kLinger{1000};

}  // namespace

Stream::Stream(Fd socket, std::size_t max_message, std::uint32_t sequence, int peer)
    : socket_(std::move(socket)),
      max_message_(max_message),
      peer_(peer),
      credit_(sequence),
      grants_(sequence) {
  static_assert(kSlots == SegmentLayout::kSlots);
}

// A TCP socket that is closed while the peer still sends to it is reset, and what it hasn't sent
// yet is lost: so it is let go when the peer has all, or has had a moment.
Stream::~Stream() {
  try {
    linger();
  } catch (const std::exception& error) {
    log(LogLevel::info, "the stream to rank {} ended badly: {}", peer_, error.what());
  }
}

void Stream::linger() {
  if (!socket_) return;
  ::shutdown(socket_.get(), SHUT_WR);
  const Deadline deadline = Deadline::after(kLinger);
  int unsent = 0;
  while (!closed_ && ::ioctl(socket_.get(), SIOCOUTQ, &unsent) == 0 && unsent > 0 &&
         !peer_ip(socket_.get()).empty() && !deadline.passed()) {
    std::size_t dropped = 0;
    while (fill(in_, dropped)) {
    }
    wait_for(socket_.get(), POLLIN, deadline, Milliseconds(1));
  }
}

void Stream::violated(const char* what) const {
  throw Error({.code = ErrorCode::protocol_violation,
               .rank = peer_,
               .cause = what,
               .remedy = "run the same version of ranklink on all ranks"});
}

bool Stream::send(std::uint32_t tag, ByteView data, std::size_t& done) {
  if (!in_message_) {
    // The head goes with the beginning of the data, in one call if there is room for both.
    if (out_.size() - out_end_ < kHeadBytes && flush() == Io::would_block) return false;
    queue_head(kMessage, tag, static_cast<std::uint32_t>(data.size()));
    done = std::min(data.size(), out_.size() - out_end_);
    if (done > 0) std::memcpy(out_.data() + out_end_, data.data(), done);
    out_end_ += done;
    in_message_ = true;
  }
  Io io = flush();
  while (io == Io::some && done < data.size()) {
    std::size_t sent = 0;
    io = send_some(socket_.get(), data.subspan(done), {}, sent);
    done += sent;
  }
  if (io == Io::closed) {
    throw Error({.code = ErrorCode::connection_lost,
                 .rank = peer_,
                 .cause = fmt::format("the stream to rank {} closed", peer_),
                 .remedy = "look at the output of that rank, and at what lies between"});
  }
  in_message_ = io == Io::would_block;
  return !in_message_;
}

bool Stream::send_credit(std::uint32_t consumed) { return send_word(kCredit, consumed); }
bool Stream::send_grants(std::uint32_t grants) { return send_word(kGrants, grants); }

bool Stream::send_word(std::uint32_t kind, std::uint32_t value) {
  if (in_message_ || flush() == Io::would_block) return false;
  queue_head(kind, 0, value);
  flush();
  return true;
}

void Stream::send_rest() {
  if (!in_message_) flush();
}

void Stream::queue_head(std::uint32_t kind, std::uint32_t tag, std::uint32_t value) {
  for (const std::uint32_t word : {kind, tag, value}) {
    std::memcpy(out_.data() + out_end_, &word, sizeof word);
    out_end_ += sizeof word;
  }
}

Io Stream::flush() {
  while (out_begin_ < out_end_) {
    std::size_t sent = 0;
    const Io io = send_some(socket_.get(),
                            ByteView(out_).subspan(out_begin_, out_end_ - out_begin_), {}, sent);
    if (io == Io::would_block) return io;
    if (io == Io::closed) {
      out_begin_ = out_end_ = 0;
      return io;
    }
    out_begin_ += sent;
  }
  out_begin_ = out_end_ = 0;
  return Io::some;
}

bool Stream::fill(std::span<std::byte> into, std::size_t& filled) {
  std::size_t received = 0;
  bool dropped = false;
  std::vector<Fd> fds;
  switch (receive_some(socket_.get(), into, fds, received, dropped)) {
    case Io::some:
      filled += received;
      return true;
    case Io::would_block:
      return false;
    case Io::closed:
      closed_ = true;
      return false;
  }
  return false;
}

void Stream::receive() {
  while (!closed_) {
    if (in_data_) {
      Message& message = slots_[received_ % kSlots];
      const std::size_t left = message.size - data_got_;
      const std::size_t here = std::min(left, in_end_ - in_begin_);
      if (here > 0) std::memcpy(message.data.data() + data_got_, in_.data() + in_begin_, here);
      in_begin_ += here;
      data_got_ += here;
      // Much comes straight to its place.
      if (data_got_ < message.size && message.size - data_got_ >= in_.size()) {
        if (!fill({message.data.data() + data_got_, message.size - data_got_}, data_got_)) return;
      }
      if (data_got_ == message.size) {
        in_data_ = false;
        ++received_;
        continue;
      }
    } else if (in_end_ - in_begin_ >= kHeadBytes) {
      take_head();
      continue;
    }
    if (in_data_ && slots_[received_ % kSlots].size - data_got_ >= in_.size()) continue;
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
    if (!fill(std::span(in_).subspan(in_end_), in_end_)) return;
  }
}

void Stream::take_head() {
  std::array<std::uint32_t, 3> head;
  std::memcpy(head.data(), in_.data() + in_begin_, sizeof head);
  in_begin_ += kHeadBytes;
  if (head[0] == kCredit) {
    credit_ = head[2];
    return;
  }
  if (head[0] == kGrants) {
    grants_ = head[2];
    return;
  }
  if (head[0] != kMessage) violated("a message of an unknown kind on a stream");
  if (head[2] > max_message_) violated("a message on a stream that is larger than any");
  if (received_ - consumed_ >= kSlots) violated("more messages on a stream than it has room");
  Message& message = slots_[received_ % kSlots];
  message.tag = head[1];
  message.size = head[2];
  if (message.data.size() < message.size) message.data.resize(message.size);
  data_got_ = 0;
  in_data_ = true;
}

const Stream::Message* Stream::front() const {
  return received_ == consumed_ ? nullptr : &slots_[consumed_ % kSlots];
}

void Stream::pop() { ++consumed_; }

short Stream::wanted() const { return in_message_ || out_begin_ < out_end_ ? POLLOUT : short{0}; }

}  // namespace ranklink
