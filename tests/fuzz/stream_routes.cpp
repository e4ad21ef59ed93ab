// What a peer sends on a stream, which is written into this rank's segment.

#include "base/socket.h"
#include "driver/driver.h"
#include "route/route.h"

namespace ranklink {
namespace {

constexpr std::size_t kSegment = 8192;

}  // namespace

// The first byte says how large the pieces are in which it comes.
void fuzz(ByteView input) {
  if (input.empty()) return;
  const auto piece = 1 + std::to_integer<std::size_t>(input[0]);
  input = input.subspan(1);
  auto [ours, theirs] = make_socketpair();
  // On the heap and of exactly this size, so that a byte written outside of it shows.
  const std::unique_ptr<std::byte[]> segment(new std::byte[kSegment]());
  const auto route = make_stream_route(std::move(ours), segment.get(), kSegment, 1);
  while (!input.empty()) {
    std::size_t sent = 0;
    const ByteView some = input.first(std::min(piece, input.size()));
    require(send_some(theirs.get(), some, {}, sent) == Io::some);
    input = input.subspan(sent);
    route->receive();
  }
  theirs.reset();
  route->receive();
  require(route->closed());
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> seeds;
  for (const int piece : {0, 16, 255}) {
    Writer w;
    w.put(std::uint32_t{1});  // a put
    w.put(std::uint32_t{5});
    w.put(std::uint64_t{kSegment - 5});
    w.raw(view_of("bytes"));
    w.put(std::uint32_t{2});  // a signal
    w.put(std::uint32_t{7});
    w.put(std::uint64_t{kSegment - 4});
    seeds.push_back(chosen(piece, w.bytes()));
  }
  return seeds;
}

}  // namespace ranklink
