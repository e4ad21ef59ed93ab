// What a peer sends on a stream.

#include "route/stream.h"

#include <algorithm>

#include "base/socket.h"
#include "driver/driver.h"

namespace ranklink {
namespace {

constexpr std::size_t kMost = 8192;

Bytes head(std::uint32_t kind, std::uint32_t tag, std::uint32_t value) {
  Writer w;
  w.put(kind);
  w.put(tag);
  w.put(value);
  return w.take();
}

}  // namespace

// The first byte says how large the pieces are in which it comes, and how many messages are left
// where they are before all are taken.
void fuzz(ByteView input) {
  if (input.empty()) return;
  const auto how = std::to_integer<std::size_t>(input[0]);
  const std::size_t piece = 1 + how % 64 * 5;
  std::size_t left = 0;
  input = input.subspan(1);
  auto [ours, theirs] = make_socketpair();
  Stream stream(std::move(ours), kMost, 0, 1);
  const auto take_all = [&] {
    while (const Stream::Message* message = stream.front()) {
      require(message->size <= kMost && message->data.size() >= message->size);
      const ByteView data = ByteView(message->data).first(message->size);
      require(std::count(data.begin(), data.end(), std::byte{0}) <= std::ssize(data));  // reads all
      stream.pop();
    }
  };
  while (!input.empty()) {
    std::size_t sent = 0;
    const ByteView some = input.first(std::min(piece, input.size()));
    require(send_some(theirs.get(), some, {}, sent) == Io::some);
    input = input.subspan(sent);
    stream.receive();
    if (left++ < how / 64 * 8) continue;
    left = 0;
    take_all();
  }
  theirs.reset();
  stream.receive();
  require(stream.closed());
  take_all();
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> seeds;
  for (const int how : {0, 3, 63, 255}) {
    Writer w;
    w.raw(head(1, 0x1000'0000, 5));  // a message
    w.raw(view_of("bytes"));
    w.raw(head(2, 0, 7));  // credit
    w.raw(head(1, 0x1000'0000, 0));
    w.raw(head(3, 0, 1));  // a grant
    w.raw(head(1, 0x1000'0000, 5000));
    w.raw(Bytes(5000));
    seeds.push_back(chosen(how, w.bytes()));
  }
  return seeds;
}

}  // namespace ranklink
