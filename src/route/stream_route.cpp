#include <fmt/format.h>

#include <array>

#include "base/socket.h"
#include "route/route.h"

namespace ranklink {
namespace {

// A message is a head of 16 bytes and, for a put, its data. Both ends are ranks of one job; what
// they send is bounded all the same.
constexpr std::size_t kHeadBytes = 16;
enum class Kind : std::uint32_t { put = 1, signal = 2 };

class StreamRoute : public Route {
 public:
  StreamRoute(Fd socket, std::byte* own, std::size_t own_bytes, int peer)
      : socket_(std::move(socket)), own_(own), own_bytes_(own_bytes), peer_(peer) {}

  bool put(std::size_t offset, ByteView bytes, std::size_t& done) override {
    if (!flush_head()) return false;
    if (!in_put_) {
      set_head(Kind::put, static_cast<std::uint32_t>(bytes.size()), offset);
      in_put_ = true;
      if (!flush_head()) return false;
    }
    while (done < bytes.size()) {
      std::size_t sent = 0;
      if (!send(bytes.subspan(done), sent)) return false;
      done += sent;
    }
    in_put_ = false;
    return true;
  }

  bool signal(std::size_t offset, std::uint32_t value) override {
    if (!in_signal_) {
      if (!flush_head()) return false;
      set_head(Kind::signal, value, offset);
      in_signal_ = true;
    }
    if (!flush_head()) return false;
    in_signal_ = false;
    return true;
  }

  void receive() override {
    while (!closed_) {
      if (got_ < kHeadBytes) {
        if (!fill({head_in_.data() + got_, kHeadBytes - got_}, got_)) return;
        if (got_ < kHeadBytes) continue;
        Reader reader(head_in_);
        kind_ = reader.get<Kind>();
        value_ = reader.get<std::uint32_t>();
        offset_ = reader.get<std::uint64_t>();
        const std::size_t bytes = kind_ == Kind::put ? value_ : sizeof(std::uint32_t);
        if ((kind_ != Kind::put && kind_ != Kind::signal) || bytes > own_bytes_ ||
            offset_ > own_bytes_ - bytes || (kind_ == Kind::signal && offset_ % 4 != 0)) {
          Reader::fail("a message on a stream that doesn't fit the segment");
        }
        data_got_ = 0;
      }
      if (kind_ == Kind::signal) {
        signal_word(own_, offset_).store(value_, std::memory_order_release);
        got_ = 0;
        continue;
      }
      while (data_got_ < value_) {
        if (!fill({own_ + offset_ + data_got_, value_ - data_got_}, data_got_)) return;
      }
      got_ = 0;
    }
  }

  int fd() const override { return closed_ ? -1 : socket_.get(); }
  bool closed() const override { return closed_; }

 private:
  [[noreturn]] void lost() const {
    throw Error({.code = ErrorCode::connection_lost,
                 .rank = peer_,
                 .cause = fmt::format("the stream to rank {} closed", peer_),
                 .remedy = "look at the output of that rank, and at what lies between"});
  }

  bool send(ByteView bytes, std::size_t& sent) {
    switch (send_some(socket_.get(), bytes, {}, sent)) {
      case Io::some:
        return true;
      case Io::would_block:
        return false;
      case Io::closed:
        lost();
    }
    return false;
  }

  bool fill(std::span<std::byte> into, std::size_t& filled) {
    if (into.empty()) return true;
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

  void set_head(Kind kind, std::uint32_t value, std::uint64_t offset) {
    Writer writer;
    writer.put(kind);
    writer.put(value);
    writer.put(offset);
    std::copy(writer.bytes().begin(), writer.bytes().end(), head_out_.begin());
    head_left_ = kHeadBytes;
  }

  bool flush_head() {
    while (head_left_ > 0) {
      std::size_t sent = 0;
      if (!send(ByteView(head_out_).subspan(kHeadBytes - head_left_), sent)) return false;
      head_left_ -= sent;
    }
    return true;
  }

  Fd socket_;
  std::byte* own_;
  std::size_t own_bytes_;
  int peer_;
  bool closed_ = false;

  std::array<std::byte, kHeadBytes> head_out_{};
  std::size_t head_left_ = 0;
  bool in_put_ = false;
  bool in_signal_ = false;

  std::array<std::byte, kHeadBytes> head_in_{};
  std::size_t got_ = 0;       // of the head
  std::size_t data_got_ = 0;  // of a put's data
  Kind kind_{};
  std::uint32_t value_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace

std::unique_ptr<Route> make_stream_route(Fd socket, std::byte* own, std::size_t own_bytes,
                                         int peer) {
  return std::make_unique<StreamRoute>(std::move(socket), own, own_bytes, peer);
}

}  // namespace ranklink
