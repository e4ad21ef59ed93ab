#include "base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace ranklink {
namespace {

constexpr std::size_t kMaxFds = 253;  // SCM_MAX_FD of the kernel

struct AddressList {
  std::vector<std::pair<sockaddr_storage, socklen_t>> addresses;
  int error = 0;
};

AddressList look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  AddressList list;
  list.error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                             &hints, &found);
  for (const addrinfo* a = found; list.error == 0 && a != nullptr; a = a->ai_next) {
    sockaddr_storage storage{};
    std::memcpy(&storage, a->ai_addr, a->ai_addrlen);
    list.addresses.emplace_back(storage, a->ai_addrlen);
  }
  if (found) ::freeaddrinfo(found);
  return list;
}

// A name server that doesn't answer blocks getaddrinfo for longer than any deadline, so a name (not
// a numeric address) is looked up in a thread that may be left behind.
AddressList resolve(const std::string& host, std::uint16_t port, Deadline deadline,
                    ErrorCode code) {
  AddressList numeric = look_up(host, port, AI_NUMERICHOST);
  if (numeric.error == 0) return numeric;
  struct Shared {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<AddressList> list;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, host, port] {
    AddressList list = look_up(host, port, 0);
    const std::lock_guard lock(shared->mutex);
    shared->list = std::move(list);
    shared->ready.notify_one();
  }).detach();
  std::unique_lock lock(shared->mutex);
  const auto done = [&] { return shared->list.has_value(); };
  if (deadline.is_never()) {
    shared->ready.wait(lock, done);
  } else if (!shared->ready.wait_until(lock, deadline.at(), done)) {
    throw Error({.code = code,
                 .cause = fmt::format("the name '{}' was not resolved before the deadline", host),
                 .remedy = "use a numeric address, or mend the name service"});
  }
  if (shared->list->error != 0) {
    throw Error({.code = code,
                 .cause = fmt::format("the name '{}' doesn't resolve: {}", host,
                                      ::gai_strerror(shared->list->error)),
                 .remedy = "use a numeric address, or a name that resolves on every rank"});
  }
  return *shared->list;
}

// Empty, with errno set, when there is none to be had.
Fd make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  if (family == AF_INET || family == AF_INET6) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return fd;
}

// Socket addresses hold 107 bytes of path; a longer one is reached through its directory.
struct UnixAddress {
  sockaddr_un address{};
  Fd directory;
};

UnixAddress unix_address(const std::string& path) {
  UnixAddress result;
  result.address.sun_family = AF_UNIX;
  // An empty path would bind an abstract name, which every process of the net namespace sees.
  if (path.empty()) {
    throw Error({.code = ErrorCode::bad_argument, .cause = "a socket's path is empty"});
  }
  std::string short_path = path;
  if (path.size() >= sizeof result.address.sun_path) {
    const auto whole = std::filesystem::absolute(path);
    result.directory.reset(::open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!result.directory) throw system_error("open " + whole.parent_path().string(), errno);
    short_path =
        fmt::format("/proc/self/fd/{}/{}", result.directory.get(), whole.filename().string());
  }
  if (short_path.size() >= sizeof result.address.sun_path) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = fmt::format("the file name of {} is too long for a socket", path),
                 .remedy = "choose a shorter file name"});
  }
  short_path.copy(result.address.sun_path, short_path.size());
  return result;
}

// Waits for a connect that is under way; 0 or its errno, ETIMEDOUT past the deadline.
int finish_connect(int fd, int result, Deadline deadline) {
  if (result == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  while (!wait_for(fd, POLLOUT, deadline)) {
    if (deadline.passed()) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

std::string ip_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

std::pair<Fd, Fd> make_socketpair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    throw system_error("socketpair", errno);
  }
  return {Fd(fds[0]), Fd(fds[1])};
}

Fd listen_tcp(const std::string& host, std::uint16_t port) {
  const std::string where = join_host_port(host, port);
  std::string why = "the name doesn't resolve";
  // An empty host would give the IPv4 wildcard first; the IPv6 one takes both.
  const AddressList list = host.empty() ? look_up("::", port, AI_NUMERICHOST)
                                        : resolve(host, port, Deadline::after(Milliseconds(20'000)),
                                                  ErrorCode::rendezvous_unusable);
  for (const auto& [address, size] : list.addresses) {
    Fd fd = make_socket(address.ss_family);
    if (!fd && host.empty()) return listen_tcp("0.0.0.0", port);  // a kernel without IPv6
    if (!fd && errno != EAFNOSUPPORT) throw system_error("socket", errno);
    if (!fd) {
      why = "this kernel has no sockets for this kind of address";
      continue;
    }
    const int on = 1;
    const int off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (host.empty()) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0) {
      return fd;
    }
    why = fmt::format("bind or listen: {}", errno_text(errno));
  }
  throw Error({.code = ErrorCode::rendezvous_unusable,
               .cause = fmt::format("can't listen on {}: {}", where, why),
               .remedy = "use an address of this host and a free port (`ss -ltnp` shows who holds "
                         "one)"});
}

Fd listen_unix(const std::string& path) {
  const UnixAddress address = unix_address(path);
  Fd fd = make_socket(AF_UNIX);
  if (!fd) throw system_error("socket", errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.address),
             sizeof address.address) != 0) {
    throw system_error("bind " + path, errno,
                       "use a directory that exists and is writable, and a name that is free");
  }
  if (::chmod(path.c_str(), 0666) != 0) throw system_error("chmod " + path, errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) throw system_error("listen " + path, errno);
  return fd;
}

Fd accept_one(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd && (errno == EMFILE || errno == ENFILE)) throw system_error("accept", errno);
  if (fd) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on Unix sockets
  }
  return fd;
}

Fd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline) {
  const AddressList list = resolve(host, port, deadline, ErrorCode::rendezvous_unreachable);
  std::string why;
  for (const auto& [address, size] : list.addresses) {
    Fd fd = make_socket(address.ss_family);
    if (!fd && errno != EAFNOSUPPORT) throw system_error("socket", errno);
    if (!fd) {  // "localhost" may give an IPv6 address on a kernel without IPv6
      if (why.empty()) why = "this kernel has no sockets for this kind of address";
      continue;
    }
    const int result = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size);
    const int error = finish_connect(fd.get(), result, deadline);
    if (error == 0) return fd;
    why =
        fmt::format("connect to {}: {}", join_host_port(ip_text(address), port), errno_text(error));
  }
  throw Error({.code = ErrorCode::rendezvous_unreachable,
               .cause = why,
               .remedy = "check that rank 0 runs, and that this address and port can be reached "
                         "from here"});
}

Fd connect_unix(const std::string& path, Deadline deadline) {
  const UnixAddress address = unix_address(path);
  Fd fd = make_socket(AF_UNIX);
  if (!fd) throw system_error("socket", errno);
  for (;;) {
    const int result = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.address),
                                 sizeof address.address);
    const int error = finish_connect(fd.get(), result, deadline);
    if (error == 0) return fd;
    // EAGAIN: the listener's backlog is full, and there is nothing to poll for.
    if (error == EAGAIN && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(1));
      continue;
    }
    throw Error({.code = ErrorCode::rendezvous_unreachable,
                 .cause = fmt::format("connect to {}: {}", path, errno_text(error)),
                 .remedy = "check that rank 0 runs and that both see this directory"});
  }
}

std::string local_ip(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return ip_text(address);
}

std::string peer_ip(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return ip_text(address);
}

std::uint16_t local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Io send_some(int fd, ByteView bytes, const std::vector<int>& fds, std::size_t& sent) {
  sent = 0;
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  if (!fds.empty()) {
    // Without a byte to travel with, descriptors would be lost in silence.
    if (fds.size() > kMaxFds || bytes.empty()) {
      throw Error({.code = ErrorCode::bad_argument,
                   .cause = fmt::format("{} descriptors with {} bytes don't fit one message",
                                        fds.size(), bytes.size())});
    }
    const std::size_t size = fds.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), fds.data(), size);
  }
  const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) {
    sent = static_cast<std::size_t>(n);
    return Io::some;
  }
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case ETOOMANYREFS:
      return Io::would_block;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Io::closed;
    default:
      throw system_error("sendmsg", errno);
  }
}

Io receive_some(int fd, std::span<std::byte> into, std::vector<Fd>& fds, std::size_t& received,
                bool& dropped) {
  received = 0;
  iovec piece{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0) {
    switch (errno) {
      case EAGAIN:
      case EINTR:
        return Io::would_block;
      case ECONNRESET:
      case ECONNABORTED:
      case ETIMEDOUT:
      case EHOSTUNREACH:
      case ENETUNREACH:
        return Io::closed;
      default:
        throw system_error("recvmsg", errno);
    }
  }
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received_fd;
      std::memcpy(&received_fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      fds.emplace_back(received_fd);
    }
  }
  if (message.msg_flags & MSG_CTRUNC) dropped = true;
  if (n == 0) return Io::closed;
  received = static_cast<std::size_t>(n);
  return Io::some;
}

bool wait_for(int fd, short events, Deadline deadline, Milliseconds slice) {
  pollfd poll{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int n = ::poll(&poll, 1, deadline.poll_ms(slice));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw system_error("poll", errno);
    if (n == 0 || deadline.passed()) return false;
  }
}

std::pair<std::string, std::uint16_t> split_host_port(const std::string& text) {
  const auto colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    host.clear();  // an IPv6 address needs brackets, or its last group reads as a port
  }
  std::uint16_t port = 0;
  const char* begin = text.data() + (colon == std::string::npos ? 0 : colon + 1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (host.empty() || error != std::errc{} || stop != end || port == 0) {
    throw Error({.code = ErrorCode::setting_invalid,
                 .cause = fmt::format("'{}' is not HOST:PORT", text),
                 .remedy = "write it as in 10.0.0.3:29400 or [fd00::3]:29400"});
  }
  return {host, port};
}

std::string join_host_port(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace ranklink
