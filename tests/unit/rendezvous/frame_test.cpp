#include "rendezvous/frame.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../base/expect_error.h"
#include "base/mapping.h"
#include "base/socket.h"

namespace ranklink {
namespace {

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

SharedFd some_descriptor() {
  return std::make_shared<const Fd>(make_shared_memory("frame-test", 8));
}

ino_t inode(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return status.st_ino;
}

Bytes bytes_of(std::string_view text) {
  const ByteView view = view_of(text);
  return {view.begin(), view.end()};
}

void send_raw(const Fd& to, ByteView bytes, const std::vector<int>& fds = {}) {
  std::size_t sent = 0;
  ASSERT_EQ(send_some(to.get(), bytes, fds, sent), Io::some);
  ASSERT_EQ(sent, bytes.size());
}

Bytes header_with(std::size_t at, std::uint8_t value) {
  Bytes bytes = encode_header({.type = FrameType::claim, .length = 5, .fds = 2});
  bytes[at] = std::byte{value};
  return bytes;
}

// A connection of a rank that has proved itself.
FrameConnection proven(Fd fd) {
  FrameConnection connection(std::move(fd));
  connection.set_limit(kRankLimit);
  return connection;
}

Frame next(FrameConnection& from) {
  const Deadline deadline = safety_net();
  for (;;) {
    if (auto frame = from.receive()) return std::move(*frame);
    if (from.closed() || !wait_for(from.fd(), POLLIN, deadline)) {
      throw Error({.code = ErrorCode::connection_lost, .cause = "no frame came"});
    }
  }
}

TEST(FrameHeader, ComesBackFromItsBytes) {
  for (auto type = std::uint16_t{1}; type <= 18; ++type) {
    const FrameHeader in{.type = static_cast<FrameType>(type), .length = 511, .fds = 253};
    const Bytes bytes = encode_header(in);
    ASSERT_EQ(bytes.size(), kFrameHeaderSize);
    const FrameHeader out = decode_header(bytes, kStrangerLimit);
    EXPECT_EQ(out.type, in.type);
    EXPECT_EQ(out.length, in.length);
    EXPECT_EQ(out.fds, in.fds);
  }
}

TEST(FrameHeader, RefusesWhatIsNone) {
  const auto refused = [](const Bytes& bytes, const char* why) {
    const std::string what =
        expect_error(ErrorCode::protocol_violation, [&] { decode_header(bytes, kRankLimit); });
    EXPECT_NE(what.find(why), std::string::npos) << what;
  };
  for (std::size_t at = 0; at < 4; ++at) refused(header_with(at, 0xff), "not a frame");
  refused(header_with(4, 2), "another wire version");
  refused(header_with(6, 0), "unknown type");
  refused(header_with(6, 19), "unknown type");
  refused(header_with(7, 0xff), "unknown type");
  refused(header_with(11, 0xff), "longer than its limit");
  refused(header_with(12, 254), "too many descriptors");
  refused(header_with(13, 1), "too many descriptors");
  refused(header_with(14, 1), "reserved bits");
  refused(header_with(15, 0x80), "reserved bits");
  refused(Bytes(kFrameHeaderSize - 1), "not a frame");
}

TEST(FrameHeader, RefusesOneByteAboveTheLimit) {
  const auto length = static_cast<std::uint32_t>(kStrangerLimit);
  EXPECT_EQ(decode_header(encode_header({FrameType::hello, length, 0}), kStrangerLimit).length,
            kStrangerLimit);
  expect_error(ErrorCode::protocol_violation, [&] {
    decode_header(encode_header({FrameType::hello, length + 1, 0}), kStrangerLimit);
  });
}

TEST(FrameConnection, BringsFramesInOrder) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  FrameConnection to(std::move(b));
  EXPECT_FALSE(to.receive());
  from.send(FrameType::hello, bytes_of("first"));
  from.send(FrameType::goodbye);
  from.send(FrameType::claim, bytes_of("third"));
  const Frame first = next(to);
  EXPECT_EQ(first.type, FrameType::hello);
  EXPECT_EQ(first.payload, bytes_of("first"));
  EXPECT_EQ(first.fds_announced, 0u);
  const Frame second = next(to);
  EXPECT_EQ(second.type, FrameType::goodbye);
  EXPECT_TRUE(second.payload.empty());
  EXPECT_EQ(next(to).payload, bytes_of("third"));
  EXPECT_FALSE(to.receive());
  EXPECT_FALSE(to.closed());
}

TEST(FrameConnection, PutsTogetherWhatComesByteByByte) {
  auto [a, b] = make_socketpair();
  FrameConnection to(std::move(b));
  Bytes all = encode_header({.type = FrameType::submit, .length = 3, .fds = 0});
  const Bytes payload = bytes_of("abc");
  all.insert(all.end(), payload.begin(), payload.end());
  const Bytes empty = encode_header({.type = FrameType::goodbye});
  all.insert(all.end(), empty.begin(), empty.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    send_raw(a, ByteView(all).subspan(i, 1));
    const auto frame = to.receive();
    ASSERT_EQ(frame.has_value(), i == 18 || i == 34) << i;
    if (!frame) continue;
    EXPECT_EQ(frame->type, i == 18 ? FrameType::submit : FrameType::goodbye);
    EXPECT_EQ(frame->payload, i == 18 ? payload : Bytes{});
  }
}

TEST(FrameConnection, SendsAndReceivesMoreThanTheSocketHolds) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  FrameConnection to(std::move(b));
  to.set_limit(kRankLimit);
  Bytes payload(5'000'001);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  from.send(FrameType::result, payload);
  from.send(FrameType::goodbye);
  EXPECT_TRUE(from.wants_write());
  std::optional<Frame> frame;
  const Deadline deadline = safety_net();
  while (!(frame = to.receive()) && !deadline.passed()) from.flush();
  ASSERT_TRUE(frame);
  EXPECT_TRUE(frame->payload == payload);
  from.flush();
  EXPECT_FALSE(from.wants_write());
  EXPECT_EQ(next(to).type, FrameType::goodbye);
}

TEST(FrameConnection, RefusesALongFrameByItsHeaderAlone) {
  auto [a, b] = make_socketpair();
  FrameConnection to(std::move(b));
  send_raw(a, encode_header({.type = FrameType::hello, .length = kStrangerLimit + 1, .fds = 0}));
  expect_error(ErrorCode::protocol_violation, [&] { to.receive(); });
}

TEST(FrameConnection, TellsDescriptorsApartByFrame) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  FrameConnection to = proven(std::move(b));
  const SharedFd one = some_descriptor();
  const SharedFd two = some_descriptor();
  const SharedFd three = some_descriptor();
  from.send(FrameType::post, bytes_of("x"), {one});
  from.send(FrameType::post, Bytes{}, {two, three});
  from.send(FrameType::post, bytes_of("none"));
  from.send(FrameType::post, bytes_of("x"), {three});
  const Frame first = next(to);
  ASSERT_EQ(first.fds.size(), 1u);
  EXPECT_EQ(inode(first.fds[0].get()), inode(one->get()));
  const Frame second = next(to);
  ASSERT_EQ(second.fds.size(), 2u);
  EXPECT_EQ(second.fds_announced, 2u);
  EXPECT_EQ(inode(second.fds[0].get()), inode(two->get()));
  EXPECT_EQ(inode(second.fds[1].get()), inode(three->get()));
  EXPECT_TRUE(next(to).fds.empty());
  EXPECT_EQ(next(to).fds.size(), 1u);
}

TEST(FrameConnection, CarriesAsManyDescriptorsAsOneMessageHolds) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  FrameConnection to = proven(std::move(b));
  from.send(FrameType::pass, Bytes{}, std::vector<SharedFd>(253, some_descriptor()));
  EXPECT_EQ(next(to).fds.size(), 253u);
}

TEST(FrameConnection, KeepsDescriptorsThatComeWithPartOfAHeader) {
  auto [a, b] = make_socketpair();
  FrameConnection to = proven(std::move(b));
  const Bytes header = encode_header({.type = FrameType::post, .length = 0, .fds = 1});
  send_raw(a, ByteView(header).first(1), {some_descriptor()->get()});
  EXPECT_FALSE(to.receive());
  send_raw(a, ByteView(header).subspan(1));
  EXPECT_EQ(next(to).fds.size(), 1u);
}

TEST(FrameConnection, RefusesDescriptorsNobodyAnnounced) {
  auto [a, b] = make_socketpair();
  FrameConnection to = proven(std::move(b));
  send_raw(a, encode_header({.type = FrameType::hello}), {some_descriptor()->get()});
  expect_error(ErrorCode::protocol_violation, [&] { to.receive(); });
}

// At its limit of open files the kernel gives a process only those that still fit.
TEST(FrameConnection, TellsHowManyDescriptorsWereDropped) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  FrameConnection to = proven(std::move(b));
  const SharedFd first = some_descriptor();
  from.send(FrameType::pass, bytes_of("few"), {first, some_descriptor(), some_descriptor()});
  from.send(FrameType::pass, bytes_of("next"), {first});

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Fd lowest_free(::dup(0));
  rlimit one_more = before;
  one_more.rlim_cur = static_cast<rlim_t>(lowest_free.get()) + 2;
  const Fd filler(::dup(0));
  const bool adjacent = filler.get() == lowest_free.get() + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  lowest_free.reset();
  const Frame few = next(to);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);

  if (adjacent) {
    ASSERT_EQ(few.fds.size(), 1u);
    EXPECT_EQ(inode(few.fds[0].get()), inode(first->get()));
  } else {
    EXPECT_LT(few.fds.size(), 3u);
  }
  EXPECT_EQ(few.fds_announced, 3u);
  EXPECT_EQ(few.payload, bytes_of("few"));
  const Frame whole = next(to);
  EXPECT_EQ(whole.fds.size(), 1u);
  EXPECT_EQ(whole.payload, bytes_of("next"));
}

TEST(FrameConnection, RefusesDescriptorsOfStrangers) {
  auto [a, b] = make_socketpair();
  FrameConnection to(std::move(b));
  const Bytes header = encode_header({.type = FrameType::hello, .length = 0, .fds = 1});
  send_raw(a, ByteView(header).first(1), {some_descriptor()->get()});
  expect_error(ErrorCode::protocol_violation, [&] { to.receive(); });
}

TEST(FrameConnection, SeesThePeerCloseInTheMiddleOfAFrame) {
  auto [a, b] = make_socketpair();
  FrameConnection to(std::move(b));
  send_raw(a, encode_header({.type = FrameType::hello, .length = 5, .fds = 0}));
  a.reset();
  EXPECT_FALSE(to.receive());
  EXPECT_TRUE(to.closed());
}

TEST(FrameConnection, ReadsWhatWasSentBeforeTheClose) {
  auto [a, b] = make_socketpair();
  {
    FrameConnection from(std::move(a));
    from.send(FrameType::goodbye);
  }
  FrameConnection to(std::move(b));
  EXPECT_EQ(next(to).type, FrameType::goodbye);
  EXPECT_FALSE(to.receive());
  EXPECT_TRUE(to.closed());
}

TEST(FrameConnection, GivesUpItsQueueWhenThePeerIsGone) {
  auto [a, b] = make_socketpair();
  FrameConnection from(std::move(a));
  b.reset();
  from.send(FrameType::result, Bytes(100));
  EXPECT_FALSE(from.wants_write());
  from.send(FrameType::goodbye);
  EXPECT_FALSE(from.receive());
  EXPECT_TRUE(from.closed());
}

TEST(FrameConnection, ReadsWhatAPeerSentThatReadsNoMore) {
  auto [a, b] = make_socketpair();
  FrameConnection one(std::move(a));
  {
    FrameConnection other(std::move(b));
    other.send(FrameType::goodbye);
  }
  one.send(FrameType::result, Bytes(100));
  EXPECT_FALSE(one.closed());
  EXPECT_EQ(next(one).type, FrameType::goodbye);
}

}  // namespace
}  // namespace ranklink
