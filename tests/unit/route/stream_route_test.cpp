#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>

#include "../base/expect_error.h"
#include "base/socket.h"
#include "route/route.h"

namespace ranklink {
namespace {

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

Bytes sample(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

// Two segments, with a stream between them.
class StreamRouteTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 3 << 20;

  StreamRouteTest() {
    auto [a, b] = make_socketpair();
    left_ = make_stream_route(std::move(a), left_segment_.data(), kBytes, 1);
    right_ = make_stream_route(std::move(b), right_segment_.data(), kBytes, 0);
  }
  std::uint32_t word(Bytes& segment, std::size_t offset) {
    return signal_word(segment.data(), offset).load();
  }

  Bytes left_segment_ = Bytes(kBytes);
  Bytes right_segment_ = Bytes(kBytes);
  std::unique_ptr<Route> left_;
  std::unique_ptr<Route> right_;
};

TEST_F(StreamRouteTest, BringsPutsAndSignalsInOrder) {
  std::size_t done = 0;
  const Bytes data = sample(1000, 1);
  ASSERT_TRUE(left_->put(4096, data, done));
  EXPECT_EQ(done, 1000u);
  ASSERT_TRUE(left_->signal(64, 7));
  EXPECT_EQ(word(right_segment_, 64), 0u);
  right_->receive();
  EXPECT_EQ(word(right_segment_, 64), 7u);
  EXPECT_EQ(std::memcmp(right_segment_.data() + 4096, data.data(), 1000), 0);
  EXPECT_EQ(right_segment_[4095], std::byte{0});
  EXPECT_EQ(right_segment_[5096], std::byte{0});
}

TEST_F(StreamRouteTest, ReachesBothEndsOfTheSegment) {
  std::size_t done = 0;
  const Bytes one(1, std::byte{0x5a});
  ASSERT_TRUE(left_->put(kBytes - 1, one, done));
  done = 0;
  ASSERT_TRUE(left_->put(0, one, done));
  done = 0;
  ASSERT_TRUE(left_->put(kBytes, {}, done));
  ASSERT_TRUE(left_->signal(kBytes - 4, 0x01020304));
  right_->receive();
  EXPECT_EQ(right_segment_[0], std::byte{0x5a});
  EXPECT_EQ(word(right_segment_, kBytes - 4), 0x01020304u);
}

// Neither side reads while it sends: each takes what comes whenever it has no room.
TEST_F(StreamRouteTest, CarriesMoreThanTheSocketHoldsBothWaysAtOnce) {
  const Bytes to_right = sample(kBytes - 4096, 1);
  const Bytes to_left = sample(kBytes - 4096, 2);
  std::size_t left_done = 0;
  std::size_t right_done = 0;
  bool left_sent = false;
  bool right_sent = false;
  bool left_signalled = false;
  bool right_signalled = false;
  int stalls = 0;
  const Deadline deadline = safety_net();
  while ((word(left_segment_, 0) == 0 || word(right_segment_, 0) == 0) && !deadline.passed()) {
    if (!left_sent && !(left_sent = left_->put(4096, to_right, left_done))) ++stalls;
    if (!right_sent) right_sent = right_->put(4096, to_left, right_done);
    if (left_sent && !left_signalled) left_signalled = left_->signal(0, 1);
    if (right_sent && !right_signalled) right_signalled = right_->signal(0, 1);
    left_->receive();
    right_->receive();
  }
  EXPECT_GT(stalls, 0);
  EXPECT_EQ(std::memcmp(right_segment_.data() + 4096, to_right.data(), to_right.size()), 0);
  EXPECT_EQ(std::memcmp(left_segment_.data() + 4096, to_left.data(), to_left.size()), 0);
}

TEST_F(StreamRouteTest, TellsThatThePeerHasClosed) {
  EXPECT_GE(right_->fd(), 0);
  std::size_t done = 0;
  ASSERT_TRUE(left_->signal(0, 1));
  left_.reset();
  right_->receive();
  EXPECT_EQ(word(right_segment_, 0), 1u);  // what was sent before counts
  EXPECT_TRUE(right_->closed());
  EXPECT_EQ(right_->fd(), -1);
  EXPECT_NE(expect_error(ErrorCode::connection_lost, [&] { right_->put(0, Bytes(1), done); })
                .find("rank 0"),
            std::string::npos);
}

class MalformedStreamTest : public StreamRouteTest {
 protected:
  // A message as nobody sends it, on a route of its own.
  void refused(std::uint32_t kind, std::uint32_t value, std::uint64_t offset) {
    auto [a, b] = make_socketpair();
    const auto route = make_stream_route(std::move(a), left_segment_.data(), kBytes, 1);
    Writer w;
    w.put(kind);
    w.put(value);
    w.put(offset);
    std::size_t sent = 0;
    ASSERT_EQ(send_some(b.get(), w.bytes(), {}, sent), Io::some);
    expect_error(ErrorCode::protocol_violation, [&] { route->receive(); });
  }
};

TEST_F(MalformedStreamTest, IsRefused) {
  constexpr std::uint32_t kPut = 1;
  constexpr std::uint32_t kSignal = 2;
  refused(0, 1, 0);
  refused(3, 1, 0);
  refused(0xffffffff, 1, 0);
  refused(kPut, 1, kBytes);
  refused(kPut, kBytes, 1);
  refused(kPut, kBytes + 1, 0);
  refused(kPut, 0xffffffff, 0);
  refused(kPut, 8, ~std::uint64_t{0} - 3);
  refused(kPut, 0, kBytes + 1);
  refused(kSignal, 1, kBytes - 3);
  refused(kSignal, 1, kBytes);
  refused(kSignal, 1, 2);
  refused(kSignal, 1, ~std::uint64_t{0} - 3);
  EXPECT_EQ(left_segment_, Bytes(kBytes));
}

TEST(StreamRoute, TakesMessagesByteByByte) {
  Bytes segment(8192);
  auto [a, b] = make_socketpair();
  const auto route = make_stream_route(std::move(a), segment.data(), segment.size(), 1);
  Writer w;
  w.put(std::uint32_t{1});
  w.put(std::uint32_t{3});
  w.put(std::uint64_t{100});
  w.raw(view_of("abc"));
  w.put(std::uint32_t{2});
  w.put(std::uint32_t{9});
  w.put(std::uint64_t{64});
  for (const std::byte byte : w.bytes()) {
    EXPECT_EQ(signal_word(segment.data(), 64).load(), 0u);
    std::size_t sent = 0;
    ASSERT_EQ(send_some(b.get(), {&byte, 1}, {}, sent), Io::some);
    route->receive();
  }
  EXPECT_EQ(signal_word(segment.data(), 64).load(), 9u);
  EXPECT_EQ(std::memcmp(segment.data() + 100, "abc", 3), 0);
}

TEST(MappedRoute, WritesIntoThePeersSegment) {
  alignas(64) std::byte segment[8192] = {};
  const auto route = make_mapped_route(segment);
  std::size_t done = 0;
  const Bytes data = sample(100, 3);
  EXPECT_TRUE(route->put(4096, data, done));
  EXPECT_EQ(done, 100u);
  EXPECT_TRUE(route->signal(64, 5));
  EXPECT_EQ(std::memcmp(segment + 4096, data.data(), 100), 0);
  EXPECT_EQ(signal_word(segment, 64).load(), 5u);
  EXPECT_EQ(route->fd(), -1);
  EXPECT_FALSE(route->closed());
}

// Where only one direction is mapped, what comes by stream must be taken all the same.
TEST(MappedRoute, ReceivesByTheStreamOfItsPeer) {
  alignas(64) std::byte mine[4096] = {};
  alignas(64) std::byte theirs[4096] = {};
  auto [a, b] = make_socketpair();
  const auto route =
      make_mapped_route(theirs, make_stream_route(std::move(a), mine, sizeof mine, 1));
  auto back = make_stream_route(std::move(b), theirs, sizeof theirs, 0);
  EXPECT_GE(route->fd(), 0);
  ASSERT_TRUE(back->signal(64, 3));
  route->receive();
  EXPECT_EQ(signal_word(mine, 64).load(), 3u);
  back.reset();
  route->receive();
  EXPECT_TRUE(route->closed());
}

}  // namespace
}  // namespace ranklink
