#include "route/stream.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>

#include "../base/expect_error.h"
#include "base/socket.h"

namespace ranklink {
namespace {

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

constexpr std::size_t kMost = 3 << 20;  // in one message
constexpr std::uint32_t kSlots = 16;

// As they stand on the wire.
constexpr std::uint32_t kMessage = 1;
constexpr std::uint32_t kCredit = 2;
constexpr std::uint32_t kGrants = 3;

Bytes sample(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

Bytes head(std::uint32_t kind, std::uint32_t tag, std::uint32_t value) {
  Writer w;
  w.put(kind);
  w.put(tag);
  w.put(value);
  return w.take();
}

void send_raw(const Fd& socket, ByteView bytes) {
  std::size_t sent = 0;
  ASSERT_EQ(send_some(socket.get(), bytes, {}, sent), Io::some);
  ASSERT_EQ(sent, bytes.size());
}

class StreamTest : public testing::Test {
 protected:
  explicit StreamTest(std::uint32_t sequence = 0) {
    auto [a, b] = make_socketpair();
    left_ = std::make_unique<Stream>(std::move(a), kMost, sequence, 1);
    right_ = std::make_unique<Stream>(std::move(b), kMost, sequence, 0);
  }

  static void send(Stream& stream, std::uint32_t tag, ByteView data) {
    std::size_t done = 0;
    ASSERT_TRUE(stream.send(tag, data, done));
    EXPECT_EQ(done, data.size());
  }
  static void expect_front(Stream& stream, std::uint32_t tag, ByteView data) {
    const Stream::Message* message = stream.front();
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(message->tag, tag);
    ASSERT_EQ(message->size, data.size());
    if (!data.empty()) {
      EXPECT_EQ(std::memcmp(message->data.data(), data.data(), data.size()), 0);
    }
    stream.pop();
  }

  std::unique_ptr<Stream> left_;
  std::unique_ptr<Stream> right_;
};

TEST_F(StreamTest, BringsMessagesInOrder) {
  for (const std::size_t size : {1000, 0, 1, 240, 4096 - 12, 4096, 10'000}) {
    send(*left_, static_cast<std::uint32_t>(size) + 7, sample(size, 1));
  }
  EXPECT_EQ(right_->front(), nullptr);
  right_->receive();
  for (const std::size_t size : {1000, 0, 1, 240, 4096 - 12, 4096, 10'000}) {
    expect_front(*right_, static_cast<std::uint32_t>(size) + 7, sample(size, 1));
  }
  EXPECT_EQ(right_->front(), nullptr);
}

TEST_F(StreamTest, BringsTheLargestMessage) {
  const Bytes data = sample(kMost, 3);
  std::size_t done = 0;
  const Deadline deadline = safety_net();
  while (!left_->send(5, data, done) && !deadline.passed()) right_->receive();
  right_->receive();
  expect_front(*right_, 5, data);
}

class LateStreamTest : public StreamTest {
 protected:
  LateStreamTest() : StreamTest(0xffff'fff0) {}
};

TEST_F(LateStreamTest, BringsCreditAndGrants) {
  EXPECT_EQ(left_->credit(), 0xffff'fff0);
  EXPECT_EQ(left_->grants(), 0xffff'fff0);
  ASSERT_TRUE(right_->send_credit(0xffff'ffff));
  left_->receive();
  EXPECT_EQ(left_->credit(), 0xffff'ffff);
  EXPECT_EQ(left_->grants(), 0xffff'fff0);
  ASSERT_TRUE(right_->send_credit(3));
  ASSERT_TRUE(right_->send_grants(1));
  left_->receive();
  EXPECT_EQ(left_->credit(), 3u);
  EXPECT_EQ(left_->grants(), 1u);
  EXPECT_EQ(right_->credit(), 0xffff'fff0);
  EXPECT_EQ(left_->front(), nullptr);
}

TEST_F(LateStreamTest, UsesItsSlotsAgainAndAgain) {
  for (std::uint32_t turn = 0; turn < 5; ++turn) {
    for (std::uint32_t i = 0; i < kSlots; ++i) send(*left_, turn, sample(i * 100, 2));
    right_->receive();
    for (std::uint32_t i = 0; i < kSlots; ++i) expect_front(*right_, turn, sample(i * 100, 2));
  }
}

// Neither side reads while it sends: each takes what comes whenever it has no room.
TEST_F(StreamTest, CarriesMoreThanTheSocketHoldsBothWaysAtOnce) {
  const Bytes to_right = sample(kMost, 1);
  const Bytes to_left = sample(kMost - 4096, 2);
  std::size_t left_done = 0;
  std::size_t right_done = 0;
  bool left_sent = false;
  bool right_sent = false;
  int stalls = 0;
  const Deadline deadline = safety_net();
  while ((!left_->front() || !right_->front()) && !deadline.passed()) {
    if (!left_sent && !(left_sent = left_->send(1, to_right, left_done))) ++stalls;
    if (!right_sent) right_sent = right_->send(2, to_left, right_done);
    left_->receive();
    right_->receive();
  }
  EXPECT_GT(stalls, 0);
  expect_front(*right_, 1, to_right);
  expect_front(*left_, 2, to_left);
}

// Credit and grants wait for the end of a message that is only half sent, and come behind it.
TEST_F(StreamTest, PutsNothingIntoAMessage) {
  const Bytes data = sample(kMost, 1);
  std::size_t done = 0;
  ASSERT_FALSE(left_->send(1, data, done));
  EXPECT_EQ(left_->wanted(), POLLOUT);
  EXPECT_FALSE(left_->send_credit(9));
  EXPECT_FALSE(left_->send_grants(9));
  const Deadline deadline = safety_net();
  while (!left_->send(1, data, done) && !deadline.passed()) right_->receive();
  EXPECT_EQ(left_->wanted(), 0);
  ASSERT_TRUE(left_->send_credit(9));
  right_->receive();
  expect_front(*right_, 1, data);
  EXPECT_EQ(right_->credit(), 9u);
  EXPECT_EQ(right_->grants(), 0u);
}

// What a full socket doesn't take is taken later, whole and in order.
TEST_F(StreamTest, KeepsWordsThatAFullSocketDoesNotTake) {
  std::uint32_t value = 0;
  while (left_->send_credit(++value) && value < 10'000'000) {
  }
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(left_->send_credit(++value));
    EXPECT_EQ(left_->wanted(), POLLOUT);
  }
  const Deadline deadline = safety_net();
  while (!left_->send_credit(++value) && !deadline.passed()) right_->receive();
  send(*left_, 4, sample(10, 4));
  right_->receive();
  EXPECT_EQ(right_->credit(), value);
  expect_front(*right_, 4, sample(10, 4));
}

TEST_F(StreamTest, TellsThatThePeerHasClosed) {
  EXPECT_GE(right_->fd(), 0);
  send(*left_, 1, sample(100, 1));
  left_.reset();
  right_->receive();
  EXPECT_TRUE(right_->closed());
  EXPECT_EQ(right_->fd(), -1);
  expect_front(*right_, 1, sample(100, 1));  // what was sent before counts
  EXPECT_TRUE(right_->send_credit(1));       // who has gone needs none
  EXPECT_TRUE(right_->send_grants(1));
  std::size_t done = 0;
  EXPECT_NE(expect_error(ErrorCode::connection_lost, [&] { right_->send(0, Bytes(1), done); })
                .find("rank 0"),
            std::string::npos);
}

// A message that has come by half when the peer goes is none.
TEST_F(StreamTest, DropsHalfAMessage) {
  auto [ours, theirs] = make_socketpair();
  Stream stream(std::move(ours), kMost, 0, 1);
  send_raw(theirs, head(kMessage, 1, 100));
  send_raw(theirs, Bytes(99));
  theirs.reset();
  stream.receive();
  EXPECT_TRUE(stream.closed());
  EXPECT_EQ(stream.front(), nullptr);
}

class MalformedStreamTest : public testing::Test {
 protected:
  // What nobody sends, on a stream of its own.
  static void refused(ByteView bytes) {
    auto [ours, theirs] = make_socketpair();
    Stream stream(std::move(ours), 4096, 0, 1);
    send_raw(theirs, bytes);
    expect_error(ErrorCode::protocol_violation, [&] { stream.receive(); });
  }
};

TEST_F(MalformedStreamTest, IsRefused) {
  refused(head(0, 0, 0));
  refused(head(4, 0, 0));
  refused(head(0xffff'ffff, 0, 0));
  refused(head(kMessage, 0, 4097));
  refused(head(kMessage, 0, 0xffff'ffff));
}

// Whoever sends more than its credit would have what it sends kept without a limit.
TEST_F(MalformedStreamTest, IsRefusedIfItOverrunsItsSlots) {
  Writer w;
  for (std::uint32_t i = 0; i < kSlots; ++i) w.raw(head(kMessage, 0, 0));
  auto [ours, theirs] = make_socketpair();
  Stream stream(std::move(ours), 4096, 0, 1);
  send_raw(theirs, w.bytes());
  stream.receive();
  w.raw(head(kMessage, 0, 0));
  refused(w.bytes());
  send_raw(theirs, head(kMessage, 0, 0));
  expect_error(ErrorCode::protocol_violation, [&] { stream.receive(); });
}

TEST(Stream, TakesMessagesByteByByte) {
  auto [ours, theirs] = make_socketpair();
  Stream stream(std::move(ours), 4096, 0, 1);
  Writer w;
  w.raw(head(kGrants, 0, 4));
  w.raw(head(kMessage, 8, 3));
  w.raw(view_of("abc"));
  w.raw(head(kCredit, 0, 9));
  for (const std::byte byte : w.bytes()) {
    EXPECT_EQ(stream.credit(), 0u);
    send_raw(theirs, {&byte, 1});
    stream.receive();
  }
  EXPECT_EQ(stream.grants(), 4u);
  EXPECT_EQ(stream.credit(), 9u);
  ASSERT_NE(stream.front(), nullptr);
  EXPECT_EQ(stream.front()->tag, 8u);
  ASSERT_EQ(stream.front()->size, 3u);
  EXPECT_EQ(std::memcmp(stream.front()->data.data(), "abc", 3), 0);
}

// By TCP, where a close while the peer still sends would throw away what is on its way.
TEST(Stream, SendsAllBeforeItGoes) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  Fd one = connect_tcp("127.0.0.1", local_port(listener.get()), safety_net());
  Fd other;
  while (!other) other = accept_one(listener.get());
  auto left = std::make_unique<Stream>(std::move(one), kMost, 0, 1);
  Stream right(std::move(other), kMost, 0, 0);
  const Deadline deadline = safety_net();
  std::size_t done = 0;
  ASSERT_TRUE(right.send(2, sample(1000, 2), done));  // which nobody reads
  const Bytes data = sample(kMost, 1);
  while (!left->send(1, data, done) && !deadline.passed()) right.receive();
  std::thread goes([&] { left.reset(); });
  while (right.front() == nullptr && !right.closed() && !deadline.passed()) right.receive();
  goes.join();
  ASSERT_NE(right.front(), nullptr);
  ASSERT_EQ(right.front()->size, data.size());
  EXPECT_EQ(std::memcmp(right.front()->data.data(), data.data(), data.size()), 0);
}

}  // namespace
}  // namespace ranklink
