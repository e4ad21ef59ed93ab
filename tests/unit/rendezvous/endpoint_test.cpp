#include "rendezvous/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "../base/expect_error.h"
#include "base/socket.h"

namespace ranklink {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

// Puts an environment variable back as it was.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class EndpointTest : public testing::Test {
 protected:
  ~EndpointTest() override { std::filesystem::remove_all(directory_); }
  std::string make_directory(const std::string& name) const {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(path);
    return path;
  }
  static std::string fresh_directory() {
    std::string path = testing::TempDir() + "/endpoint-XXXXXX";
    return ::mkdtemp(path.data()) == nullptr ? "" : path;
  }

  const std::string directory_ = fresh_directory();
};

TEST_F(EndpointTest, ReachesASocketFile) {
  const std::string endpoint = "unix://" + directory_ + "/meet";
  const Fd listener = listen_endpoint(endpoint);
  const Fd client = connect_endpoint(endpoint, safety_net());
  EXPECT_TRUE(accept_one(listener.get()));
}

TEST_F(EndpointTest, ReachesATcpListener) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    Listening listening;
    try {
      add_tcp_listener(listening, host, {host});
    } catch (const Error&) {
      if (std::string_view(host) == "::1") continue;  // a host without IPv6
      throw;
    }
    const Fd client = connect_endpoint(listening.endpoints.at(0), safety_net());
    EXPECT_TRUE(accept_one(listening.listeners.at(0).get()));
  }
}

TEST_F(EndpointTest, IsRefusedIfItIsNone) {
  for (const char* text :
       {"", "here", "tcp://", "tcp://host", "tcp://host:", "tcp://host:x", "tcp://host:65536",
        "tcp://fd00::3:29400", "http://host:80", "file:///tmp", "TCP://host:80"}) {
    expect_error(ErrorCode::setting_invalid, [&] { connect_endpoint(text, safety_net()); });
    expect_error(ErrorCode::setting_invalid, [&] { listen_endpoint(text); });
  }
}

TEST_F(EndpointTest, SaysThatNobodyListens) {
  const std::string path = directory_ + "/nobody";
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable,
                           [&] { connect_endpoint("unix://" + path, safety_net()); }),
              HasSubstr(path));
  std::string endpoint;
  {
    Listening gone;
    add_tcp_listener(gone, "127.0.0.1", {"127.0.0.1"});
    endpoint = gone.endpoints.at(0);
  }
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable,
                           [&] { connect_endpoint(endpoint, safety_net()); }),
              HasSubstr("ECONNREFUSED"));
}

TEST_F(EndpointTest, ListensOnAFileOfRandomNameAndRemovesIt) {
  std::string file;
  {
    Listening listening;
    add_unix_listener(listening, directory_);
    add_unix_listener(listening, directory_);
    ASSERT_EQ(listening.files.size(), 2u);
    EXPECT_NE(listening.files[0], listening.files[1]);
    file = listening.files[0];
    EXPECT_EQ(listening.endpoints[0], "unix://" + file);
    struct stat status {};
    ASSERT_EQ(::stat(file.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    const Listening moved = std::move(listening);
    EXPECT_TRUE(std::filesystem::exists(file));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(EndpointTest, GivesOneEndpointAnAddress) {
  Listening listening;
  add_tcp_listener(listening, "127.0.0.1", {"10.0.0.1", "fd00::3"});
  const std::string port = std::to_string(local_port(listening.listeners.at(0).get()));
  EXPECT_EQ(listening.endpoints,
            (std::vector<std::string>{"tcp://10.0.0.1:" + port, "tcp://[fd00::3]:" + port}));
}

TEST_F(EndpointTest, PrefersTheDirectoryOfTheSetting) {
  const std::string preferred = make_directory("preferred");
  const std::string dra = make_directory("dra");
  const std::string runtime = make_directory("runtime");
  const std::string temporary = make_directory("temporary");
  const Variable a("NVIDIA_DRA_LOCAL_IPC_DIR", dra);
  const Variable b("XDG_RUNTIME_DIR", runtime);
  const Variable c("TMPDIR", temporary);
  auto found = socket_directories(preferred);
  ASSERT_GE(found.size(), 4u);
  found.resize(4);
  EXPECT_EQ(found, (std::vector<std::string>{preferred, dra, runtime, temporary}));
  EXPECT_EQ(socket_directories("").at(0), dra);
}

TEST_F(EndpointTest, LeavesOutDirectoriesThatAreNotThere) {
  const std::string runtime = make_directory("runtime");
  const Variable a("NVIDIA_DRA_LOCAL_IPC_DIR", directory_ + "/missing");
  const Variable b("XDG_RUNTIME_DIR", runtime);
  const Variable c("TMPDIR", runtime);
  const auto found = socket_directories("");
  EXPECT_THAT(found, Contains(runtime).Times(1));
  EXPECT_EQ(found.at(0), runtime);
  const Variable relative("XDG_RUNTIME_DIR", "relative");
  EXPECT_THAT(socket_directories(""), Not(Contains("relative")));
}

TEST_F(EndpointTest, ObeysTheSettingOrFails) {
  EXPECT_THAT(expect_error(ErrorCode::setting_invalid,
                           [&] { socket_directories(directory_ + "/missing"); }),
              HasSubstr("RANKLINK_SOCKET_DIR"));
}

TEST(HostAddresses, EndInLoopback) {
  const auto addresses = host_addresses(64);
  for (const std::string& address : addresses) {
    EXPECT_EQ(address.find('%'), std::string::npos) << address;
    Listening listening;
    EXPECT_NO_THROW(add_tcp_listener(listening, address, {address})) << address;
  }
  EXPECT_LE(host_addresses(1).size(), 1u);
  EXPECT_TRUE(host_addresses(0).empty());
}

}  // namespace
}  // namespace ranklink
