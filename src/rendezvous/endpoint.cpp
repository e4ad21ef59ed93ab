#include "rendezvous/endpoint.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/secret.h"
#include "base/socket.h"

namespace ranklink {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kUnix = "unix://";

[[noreturn]] void refuse_endpoint(const std::string& endpoint) {
  throw Error({.code = ErrorCode::setting_invalid,
               .cause = fmt::format("'{}' is not an endpoint", endpoint),
               .remedy = "write tcp://HOST:PORT or unix:///PATH"});
}

}  // namespace

Fd connect_endpoint(const std::string& endpoint, Deadline deadline) {
  if (endpoint.starts_with(kTcp)) {
    const auto [host, port] = split_host_port(endpoint.substr(kTcp.size()));
    return connect_tcp(host, port, deadline);
  }
  if (endpoint.starts_with(kUnix)) return connect_unix(endpoint.substr(kUnix.size()), deadline);
  refuse_endpoint(endpoint);
}

Fd listen_endpoint(const std::string& endpoint) {
  if (endpoint.starts_with(kTcp)) {
    const auto [host, port] = split_host_port(endpoint.substr(kTcp.size()));
    return listen_tcp(host, port);
  }
  if (endpoint.starts_with(kUnix)) return listen_unix(endpoint.substr(kUnix.size()));
  refuse_endpoint(endpoint);
}

Listening& Listening::operator=(Listening&& other) noexcept {
  Listening mine(std::move(other));  // takes this one's files along, and removes them
  std::swap(listeners, mine.listeners);
  std::swap(endpoints, mine.endpoints);
  std::swap(files, mine.files);
  return *this;
}

Listening::~Listening() {
  for (const std::string& file : files) ::unlink(file.c_str());
}

std::vector<std::string> socket_directories(const std::string& preferred) {
  std::vector<std::string> directories;
  const auto add = [&](const char* path) {
    struct stat status {};
    if (path == nullptr || *path != '/' || ::stat(path, &status) != 0) return;
    if (!S_ISDIR(status.st_mode) || ::access(path, W_OK | X_OK) != 0) return;
    if (std::find(directories.begin(), directories.end(), path) == directories.end()) {
      directories.emplace_back(path);
    }
  };
  if (!preferred.empty()) {
    add(preferred.c_str());
    if (directories.empty()) {
      throw Error({.code = ErrorCode::setting_invalid,
                   .cause = fmt::format("RANKLINK_SOCKET_DIR={} is not a directory in which this "
                                        "process may create files",
                                        preferred),
                   .remedy = "create it, or mount it, or unset RANKLINK_SOCKET_DIR"});
    }
  }
  add(std::getenv("NVIDIA_DRA_LOCAL_IPC_DIR"));
  add(std::getenv("XDG_RUNTIME_DIR"));
  add(std::getenv("TMPDIR"));
  add("/dev/shm");
  return directories;
}

void add_unix_listener(Listening& to, const std::string& directory) {
  const auto name = random_bytes<std::array<std::byte, 12>>();
  const std::string path = fmt::format("{}/ranklink-{}", directory, to_hex(name));
  to.listeners.push_back(listen_unix(path));
  to.files.push_back(path);
  to.endpoints.push_back(fmt::format("{}{}", kUnix, path));
}

void add_tcp_listener(Listening& to, const std::string& host,
                      const std::vector<std::string>& addresses) {
  to.listeners.push_back(listen_tcp(host, 0));
  const std::uint16_t port = local_port(to.listeners.back().get());
  for (const std::string& address : addresses) {
    to.endpoints.push_back(fmt::format("{}{}", kTcp, join_host_port(address, port)));
  }
}

std::vector<std::string> host_addresses(std::size_t limit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<std::string> outside;
  std::vector<std::string> loopback;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    const std::string address = text;
    if (address.find('%') != std::string::npos) continue;  // link-local: means nothing elsewhere
    ((i->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : outside).push_back(address);
  }
  outside.insert(outside.end(), loopback.begin(), loopback.end());
  if (outside.size() > limit) outside.resize(limit);
  return outside;
}

}  // namespace ranklink
