#include "rendezvous/frame.h"

#include <poll.h>

#include <thread>

#include "base/log.h"
#include "base/socket.h"

namespace ranklink {
namespace {

constexpr std::uint32_t kMagic = 0x4b4e4c52;  // "RLNK"
constexpr std::uint16_t kWireVersion = 1;
constexpr std::size_t kMaxFds = 253;

}  // namespace

SharedFd borrow_fd(int fd) {
  return {new Fd(fd), [](Fd* borrowed) {
            static_cast<void>(borrowed->release());
            delete borrowed;
          }};
}

Bytes encode_header(const FrameHeader& header) {
  Writer writer;
  writer.put(kMagic);
  writer.put(kWireVersion);
  writer.put(header.type);
  writer.put(header.length);
  writer.put(header.fds);
  writer.put(std::uint16_t{0});
  return writer.take();
}

FrameHeader decode_header(ByteView bytes, std::size_t limit) {
  Reader reader(bytes);
  if (reader.get<std::uint32_t>() != kMagic) Reader::fail("not a frame of ranklink");
  if (reader.get<std::uint16_t>() != kWireVersion) Reader::fail("a frame of another wire version");
  FrameHeader header;
  header.type = reader.get<FrameType>();
  header.length = reader.get<std::uint32_t>();
  header.fds = reader.get<std::uint16_t>();
  if (header.type < FrameType::challenge || header.type > FrameType::meet_ack) {
    Reader::fail("a frame of unknown type");
  }
  if (header.length > limit) Reader::fail("a frame longer than its limit");
  if (header.fds > kMaxFds) Reader::fail("a frame with too many descriptors");
  if (reader.get<std::uint16_t>() != 0) Reader::fail("a frame with reserved bits set");
  return header;
}

void FrameConnection::send(FrameType type, Bytes payload, std::vector<SharedFd> fds) {
  send(type, std::make_shared<const Bytes>(std::move(payload)), std::move(fds));
}

void FrameConnection::send(FrameType type, SharedBytes payload, std::vector<SharedFd> fds) {
  if (closed_ || deaf_) return;
  const FrameHeader header{.type = type,
                           .length = static_cast<std::uint32_t>(payload->size()),
                           .fds = static_cast<std::uint16_t>(fds.size())};
  queue_.push_back({std::make_shared<const Bytes>(encode_header(header)), 0, std::move(fds)});
  if (!payload->empty()) queue_.push_back({std::move(payload), 0, {}});
  flush();
}

void FrameConnection::flush() {
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    std::vector<int> fds;
    if (out.sent == 0) {
      for (const SharedFd& fd : out.fds) fds.push_back(fd->get());
    }
    std::size_t sent = 0;
    Io io = Io::closed;
    try {
      io = send_some(fd_.get(), ByteView(*out.bytes).subspan(out.sent), fds, sent);
    } catch (const Error& error) {  // of this connection alone: its peer counts as gone
      log(LogLevel::warn, "a connection is given up: {}", error.cause());
    }
    if (io == Io::would_block) return;
    if (io == Io::closed) {
      deaf_ = true;
      queue_.clear();
      return;
    }
    out.sent += sent;
    if (out.sent == out.bytes->size()) queue_.pop_front();
  }
}

void FrameConnection::flush_until(Deadline deadline) {
  flush();
  while (wants_write() && !deadline.passed()) {
    // With too many descriptors in flight the socket is writable and takes nothing.
    if (wait_for(fd_.get(), POLLOUT, deadline)) std::this_thread::sleep_for(Milliseconds(1));
    flush();
  }
}

std::optional<Frame> FrameConnection::receive() {
  // The header is read exactly, and then its payload, so that descriptors can be told apart by
  // frame even when the kernel dropped some.
  for (;;) {
    const std::size_t wanted = header_ ? header_->length : kFrameHeaderSize;
    if (filled_ < wanted) {
      if (buffer_.size() < wanted) buffer_.resize(wanted);
      bool dropped = false;
      std::size_t received = 0;
      const Io io = receive_some(fd_.get(), std::span(buffer_).subspan(filled_, wanted - filled_),
                                 received_fds_, received, dropped);
      // A stranger's would fill this process's table of open files before it can be refused.
      if (!received_fds_.empty() && limit_ <= kStrangerLimit) {
        Reader::fail("descriptors from somebody who hasn't proved himself");
      }
      if (io == Io::closed) closed_ = true;
      if (io != Io::some) return std::nullopt;
      filled_ += received;
      if (filled_ < wanted) continue;
    }
    buffer_.resize(wanted);
    filled_ = 0;
    if (!header_) {
      header_ = decode_header(buffer_, limit_);
      buffer_.clear();
      continue;
    }
    Frame frame{header_->type, std::move(buffer_), std::move(received_fds_), header_->fds};
    header_.reset();
    buffer_.clear();
    received_fds_.clear();
    if (frame.fds.size() > frame.fds_announced) Reader::fail("descriptors nobody announced");
    return frame;
  }
}

}  // namespace ranklink
