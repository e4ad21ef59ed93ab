#include "base/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/mapping.h"
#include "expect_error.h"

namespace ranklink {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(10)); }

class TempDir {
 public:
  TempDir() {
    std::string name = "/tmp/rl-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no directory";
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  /// A path of so many bytes below this directory, whose own directory exists.
  std::string path_of(std::size_t size) const {
    std::string path = path_ + "/";
    while (size - path.size() > 60) path += std::string(50, 'd') + "/";
    std::filesystem::create_directories(path);
    return path + std::string(size - path.size(), 's');
  }

 private:
  std::string path_;
};

Fd accept_soon(const Fd& listener) {
  EXPECT_TRUE(wait_for(listener.get(), POLLIN, soon()));
  return accept_one(listener.get());
}

std::string receive_text(int fd, std::vector<Fd>& fds, bool& dropped) {
  std::array<std::byte, 64> into;
  std::size_t received = 0;
  EXPECT_TRUE(wait_for(fd, POLLIN, soon()));
  EXPECT_EQ(receive_some(fd, into, fds, received, dropped), Io::some);
  return {reinterpret_cast<const char*>(into.data()), received};
}

std::string receive_text(int fd) {
  std::vector<Fd> fds;
  bool dropped = false;
  return receive_text(fd, fds, dropped);
}

void send_text(int fd, std::string_view text, const std::vector<int>& fds = {}) {
  std::size_t sent = 0;
  ASSERT_EQ(send_some(fd, view_of(text), fds, sent), Io::some);
  ASSERT_EQ(sent, text.size());
}

bool is_non_blocking_and_cloexec(const Fd& fd) {
  return (::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) != 0 &&
         (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

class UnixSocket : public testing::TestWithParam<std::size_t> {};

TEST_P(UnixSocket, ConnectsByAPathOfThisLength) {
  const TempDir directory;
  const std::string path = directory.path_of(GetParam());
  ASSERT_EQ(path.size(), GetParam());
  const Fd listener = listen_unix(path);
  EXPECT_FALSE(accept_one(listener.get()));
  const Fd client = connect_unix(path, soon());
  const Fd server = accept_soon(listener);
  send_text(client.get(), "hello");
  EXPECT_EQ(receive_text(server.get()), "hello");
  for (const Fd* fd : {&listener, &client, &server}) {
    EXPECT_TRUE(is_non_blocking_and_cloexec(*fd));
  }
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666u);
  // The file exists now, and is never taken over.
  EXPECT_THAT(expect_error(ErrorCode::system_call, [&] { listen_unix(path); }),
              HasSubstr("EADDRINUSE"));
}

INSTANTIATE_TEST_SUITE_P(Lengths, UnixSocket, testing::Values(30, 107, 108, 200));

TEST(UnixSocketPath, MayBeRelative) {
  const TempDir directory;
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path whole = directory.path_of(60);
  std::filesystem::current_path(whole.parent_path());
  const Fd listener = listen_unix("s");
  EXPECT_TRUE(connect_unix(whole.parent_path() / "s", soon()));
  std::filesystem::current_path(before);
}

TEST(UnixSocketPath, IsRefusedWhereItCannotWork) {
  const TempDir directory;
  EXPECT_THAT(expect_error(ErrorCode::bad_argument, [] { listen_unix(""); }), HasSubstr("empty"));
  expect_error(ErrorCode::bad_argument, [] { connect_unix("", soon()); });
  const std::string name = directory.path_of(20) + std::string(150, 'x');
  expect_error(ErrorCode::bad_argument, [&] { listen_unix(name); });
  EXPECT_THAT(
      expect_error(ErrorCode::system_call, [&] { listen_unix(directory.path_of(30) + "/none/s"); }),
      HasSubstr("ENOENT"));
}

TEST(ConnectUnix, GivesTheKernelsAnswer) {
  const TempDir directory;
  const std::string path = directory.path_of(40);
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable, [&] { connect_unix(path, soon()); }),
              HasSubstr("ENOENT"));
  listen_unix(path).reset();  // the file stays
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable, [&] { connect_unix(path, soon()); }),
              HasSubstr("ECONNREFUSED"));
}

class FullUnixListener : public testing::Test {
 protected:
  FullUnixListener() : path_(directory_.path_of(40)), listener_(listen_unix(path_)) {
    ::listen(listener_.get(), 0);  // a backlog that one connection fills
    first_ = connect_unix(path_, soon());
  }
  TempDir directory_;
  std::string path_;
  Fd listener_;
  Fd first_;
};

TEST_F(FullUnixListener, HoldsAConnectUntilTheDeadline) {
  const auto start = Deadline::Clock::now();
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable,
                           [&] { connect_unix(path_, Deadline::after(Milliseconds(30))); }),
              HasSubstr("EAGAIN"));
  EXPECT_GE(Deadline::Clock::now() - start, Milliseconds(30));
}

TEST_F(FullUnixListener, LetsAConnectInWhenOneIsAccepted) {
  Fd second;
  std::thread client([&] { second = connect_unix(path_, soon()); });
  const Fd a = accept_soon(listener_);
  const Fd b = accept_soon(listener_);
  client.join();
  EXPECT_TRUE(a && b && second);
}

TEST(Tcp, ConnectsAndKnowsItsAddresses) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  ASSERT_NE(port, 0);
  const Fd client = connect_tcp("127.0.0.1", port, soon());
  const Fd server = accept_soon(listener);
  send_text(server.get(), "hello");
  EXPECT_EQ(receive_text(client.get()), "hello");
  EXPECT_EQ(local_ip(client.get()), "127.0.0.1");
  EXPECT_EQ(peer_ip(server.get()), "127.0.0.1");
  EXPECT_EQ(local_port(server.get()), port);
  EXPECT_TRUE(is_non_blocking_and_cloexec(client));
  EXPECT_TRUE(is_non_blocking_and_cloexec(server));
}

TEST(Tcp, ConnectsByAName) {
  const Fd listener = listen_tcp("localhost", 0);
  const Fd client = connect_tcp("localhost", local_port(listener.get()), soon());
  EXPECT_TRUE(accept_soon(listener));
}

bool has_ipv6() {
  const Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  return fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
}

TEST(Tcp, ConnectsByIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  const Fd listener = listen_tcp("::1", 0);
  const Fd client = connect_tcp("::1", local_port(listener.get()), soon());
  const Fd server = accept_soon(listener);
  EXPECT_EQ(peer_ip(server.get()), "::1");
}

TEST(Tcp, ListensOnAllAddressesOfBothKinds) {
  const Fd listener = listen_tcp("", 0);
  const std::uint16_t port = local_port(listener.get());
  const Fd by_v4 = connect_tcp("127.0.0.1", port, soon());
  const Fd server = accept_soon(listener);
  EXPECT_EQ(peer_ip(server.get()), "127.0.0.1");  // not ::ffff:127.0.0.1
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  const Fd by_v6 = connect_tcp("::1", port, soon());
  EXPECT_TRUE(accept_soon(listener));
}

TEST(ListenTcp, SaysWhyItCannot) {
  const Fd holder = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(holder.get());
  const std::string taken =
      expect_error(ErrorCode::rendezvous_unusable, [&] { listen_tcp("127.0.0.1", port); });
  EXPECT_THAT(taken, HasSubstr("EADDRINUSE"));
  EXPECT_THAT(taken, HasSubstr("127.0.0.1:" + std::to_string(port)));
  // TEST-NET-2 is no address of any host.
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unusable, [] { listen_tcp("198.51.100.7", 0); }),
              HasSubstr("EADDRNOTAVAIL"));
}

TEST(ConnectTcp, GivesTheKernelsAnswer) {
  std::uint16_t port = 0;
  {
    const Fd listener = listen_tcp("127.0.0.1", 0);
    port = local_port(listener.get());
  }
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable,
                           [&] { connect_tcp("127.0.0.1", port, soon()); }),
              HasSubstr("ECONNREFUSED"));
}

TEST(ConnectTcp, EndsAtTheDeadline) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  // With a backlog of one that is full, the kernel drops what else asks to connect.
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<Fd> fillers;
  const auto start = Deadline::Clock::now();
  std::string message;
  for (int i = 0; i < 8 && message.empty(); ++i) {
    try {
      fillers.push_back(connect_tcp("127.0.0.1", port, Deadline::after(Milliseconds(100))));
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(message, HasSubstr("ETIMEDOUT"));
  EXPECT_GE(Deadline::Clock::now() - start, Milliseconds(100));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

TEST(SendSome, CarriesDescriptors) {
  const auto [a, b] = make_socketpair();
  const Fd first = make_shared_memory("first", 4096);
  const Fd second = make_shared_memory("second", 8192);
  send_text(a.get(), "two", {first.get(), second.get()});
  std::vector<Fd> fds;
  bool dropped = false;
  EXPECT_EQ(receive_text(b.get(), fds, dropped), "two");
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_FALSE(dropped);
  EXPECT_NO_THROW(check_shared_memory(fds[1].get(), 8192));
  EXPECT_NE(::fcntl(fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  Mapping(first.get(), 4096).data()[0] = std::byte{42};
  EXPECT_EQ(Mapping(fds[0].get(), 4096).data()[0], std::byte{42});
}

TEST(SendSome, CarriesAsManyDescriptorsAsTheKernelAllows) {
  const auto [a, b] = make_socketpair();
  const std::vector<int> most(253, a.get());
  send_text(a.get(), "x", most);
  std::vector<Fd> fds;
  bool dropped = false;
  receive_text(b.get(), fds, dropped);
  EXPECT_EQ(fds.size(), 253u);
  EXPECT_FALSE(dropped);
}

TEST(SendSome, RefusesDescriptorsThatDoNotFit) {
  const std::pair<Fd, Fd> ends = make_socketpair();
  const int a = ends.first.get();
  std::size_t sent = 0;
  const std::vector<int> many(254, a);
  expect_error(ErrorCode::bad_argument, [&] { send_some(a, view_of("x"), many, sent); });
  expect_error(ErrorCode::bad_argument, [&] { send_some(a, {}, {a}, sent); });
}

TEST(ReceiveSome, TellsThatDescriptorsWereDropped) {
  const auto [a, b] = make_socketpair();
  const Fd sent = make_shared_memory("sent", 4096);
  send_text(a.get(), "three", {sent.get(), sent.get(), sent.get()});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = ::dup(a.get());
  ::close(lowest_free);
  // Room for one descriptor, if there is no gap above it; what is open stays open.
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
  std::vector<Fd> fds;
  fds.reserve(3);
  std::array<std::byte, 8> into;
  std::size_t received = 0;
  bool dropped = false;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Io io = receive_some(b.get(), into, fds, received, dropped);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(io, Io::some);
  EXPECT_EQ(received, 5u);
  EXPECT_TRUE(dropped);
  EXPECT_EQ(fds.size(), 1u);
}

TEST(SendSome, ReadsABrokenConnectionAsClosed) {
  auto [a, b] = make_socketpair();
  b.reset();
  std::size_t sent = 0;
  EXPECT_EQ(send_some(a.get(), view_of("x"), {}, sent), Io::closed);
  expect_error(ErrorCode::system_call, [&] { send_some(-1, view_of("x"), {}, sent); });
}

TEST(SendSome, SaysWhenItWouldBlockAndHowMuchWent) {
  const auto [a, b] = make_socketpair();
  const Bytes much(1 << 20);
  std::size_t total = 0;
  std::size_t sent = 0;
  while (send_some(a.get(), much, {}, sent) == Io::some) {
    ASSERT_GT(sent, 0u);
    total += sent;
  }
  EXPECT_EQ(sent, 0u);
  std::vector<Fd> fds;
  bool dropped = false;
  Bytes into(1 << 16);
  while (receive_some(b.get(), into, fds, sent, dropped) == Io::some) total -= sent;
  EXPECT_EQ(total, 0u);
}

TEST(ReceiveSome, TellsSilenceFromTheEnd) {
  auto [a, b] = make_socketpair();
  std::array<std::byte, 8> into;
  std::vector<Fd> fds;
  std::size_t received = 1;
  bool dropped = false;
  EXPECT_EQ(receive_some(b.get(), into, fds, received, dropped), Io::would_block);
  EXPECT_EQ(received, 0u);
  send_text(a.get(), "x");
  a.reset();
  EXPECT_EQ(receive_some(b.get(), into, fds, received, dropped), Io::some);
  EXPECT_EQ(receive_some(b.get(), into, fds, received, dropped), Io::closed);
}

TEST(WaitFor, EndsWithTheDeadlineTheSliceOrTheEvent) {
  const auto [a, b] = make_socketpair();
  const auto start = Deadline::Clock::now();
  EXPECT_FALSE(wait_for(b.get(), POLLIN, Deadline::after(Milliseconds(10))));
  EXPECT_FALSE(wait_for(b.get(), POLLIN, Deadline::never(), Milliseconds(10)));
  EXPECT_GE(Deadline::Clock::now() - start, Milliseconds(20));
  EXPECT_TRUE(wait_for(b.get(), POLLOUT, Deadline::after(-seconds(1))));
  send_text(a.get(), "x");
  EXPECT_TRUE(wait_for(b.get(), POLLIN, Deadline::never()));
}

TEST(SplitHostPort, TakesHostsAndBracketedAddresses) {
  using Pair = std::pair<std::string, std::uint16_t>;
  EXPECT_EQ(split_host_port("node-7:29400"), Pair("node-7", 29400));
  EXPECT_EQ(split_host_port("10.0.0.3:1"), Pair("10.0.0.3", 1));
  EXPECT_EQ(split_host_port("[fd00::3]:65535"), Pair("fd00::3", 65535));
}

TEST(SplitHostPort, RefusesTheRest) {
  for (const char* wrong : {"", "host", "host:", ":80", "host:0", "host:65536", "host:-1",
                            "host:80x", "host: 80", "[]:80", "[::1]", "::1:80", "fd00::3"}) {
    EXPECT_THAT(expect_error(ErrorCode::setting_invalid, [&] { split_host_port(wrong); }),
                HasSubstr(std::string("'") + wrong + "'"));
  }
}

TEST(JoinHostPort, IsReadBackBySplitHostPort) {
  EXPECT_EQ(join_host_port("fd00::3", 80), "[fd00::3]:80");
  for (const char* host : {"node-7", "10.0.0.3", "fd00::3"}) {
    EXPECT_EQ(split_host_port(join_host_port(host, 80)).first, host);
  }
}

}  // namespace
}  // namespace ranklink
