// Frames as they come from a socket: header and payload, in pieces, with descriptors nobody
// expects.

#include <unistd.h>

#include "base/socket.h"
#include "driver/driver.h"
#include "rendezvous/frame.h"

namespace ranklink {

// The first byte says how large the pieces are, and whether the sender has proved itself.
void fuzz(ByteView input) {
  if (input.empty()) return;
  const auto how = std::to_integer<std::size_t>(input[0]);
  input = input.subspan(1);
  auto [ours, theirs] = make_socketpair();
  FrameConnection connection(std::move(ours));
  connection.set_limit(how % 2 == 0 ? kStrangerLimit : 65'536);
  std::size_t frames = 0;
  while (!input.empty()) {
    const ByteView piece = input.first(std::min(input.size(), 1 + how / 4));
    std::size_t sent = 0;
    const std::vector<int> fds(how % 4 == 3 ? 1 : 0, STDIN_FILENO);
    require(send_some(theirs.get(), piece, fds, sent) == Io::some);
    input = input.subspan(sent);
    while (const auto frame = connection.receive()) {
      require(frame->fds.size() <= frame->fds_announced);
      require(frame->payload.size() <= 65'536);
      ++frames;
    }
  }
  theirs.reset();
  while (connection.receive()) ++frames;
  require(connection.closed() && frames < 1'000'000);
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> seeds;
  for (const int how : {0, 1, 3, 254, 255}) {
    Writer w;
    w.raw(encode_header({.type = FrameType::hello, .length = 5, .fds = 0}));
    w.raw(view_of("hello"));
    w.raw(encode_header({.type = FrameType::goodbye}));
    w.raw(encode_header({.type = FrameType::pass, .length = 1, .fds = 2}));
    w.raw(view_of("x"));
    seeds.push_back(chosen(how, w.bytes()));
  }
  return seeds;
}

}  // namespace ranklink
