#include "rendezvous/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <latch>
#include <map>
#include <mutex>
#include <thread>

#include "base/error_codec.h"
#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/frame.h"
#include "rendezvous/membership.h"
#include "rendezvous/messages.h"

namespace ranklink {
namespace {

constexpr Milliseconds kStrangerPatience{2000};
constexpr Milliseconds kFarewell{1000};
constexpr std::size_t kMaxStrangers = 64;  // at once; a rank that is turned away comes again

bool is_unix(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// The peer's process as this one sees it; 0 where the kernel doesn't say.
int peer_pid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return 0;
  return credentials.pid;
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(Options options);
  ~Impl();

  std::mutex& mutex() { return mutex_; }
  Membership& membership() { return membership_; }
  /// Takes what the rank has sent so far, so that a goodbye isn't overtaken by its process's end.
  void drain(int rank);
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }

 private:
  enum class Stage { challenged, proven, seated };
  struct Connection {
    explicit Connection(Fd fd) : frames(std::move(fd)) {}
    FrameConnection frames;
    Stage stage = Stage::challenged;
    Nonce nonce{};
    Deadline patience = Deadline::never();
    int made_for = -1;  // the rank that the launcher made this socket for
    int rank = -1;
    bool refused = false;
    std::uint32_t watched = 0;  // epoll events
  };
  static constexpr std::uint64_t kWakeId = 0;
  static constexpr std::uint64_t kListenerIds = 1'000'000'000;

  void run();
  void watch(int fd, std::uint64_t id);
  void add(Fd fd, int made_for);
  void accept_from(int listener);
  void serve(std::uint64_t id, Connection& connection);
  void on_hello(Connection& connection, const Frame& frame);
  void on_claim(std::uint64_t id, Connection& connection, const Frame& frame);
  void refuse(Connection& connection, std::string_view why, bool secret_wrong = false);
  void drop_closed_and_late();
  std::string strangers_text() const;
  std::size_t strangers() const;
  void turn();

  Options options_;
  std::mutex mutex_;
  Fd epoll_;
  Fd wake_;
  Fd spare_;  ///< given up to accept, and drop, a connection at the limit of open files
  bool stopping_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Connection> connections_;
  std::vector<std::uint64_t> by_rank_;  // connection ids
  std::size_t refused_ = 0;
  std::string last_refusal_;
  Membership membership_;
  std::latch running_{1};
  std::thread thread_;
};

Server::Impl::Impl(Options options)
    : options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      membership_(
          {.size = options_.size,
           .pids = options_.pids,
           .reduce = options_.reduce,
           .reports_ends = options_.reports_ends},
          {.send =
               [this](int rank, FrameType type, SharedBytes payload, std::vector<SharedFd> fds) {
                 const auto index = static_cast<std::size_t>(rank);
                 if (index >= by_rank_.size()) return;
                 const auto found = connections_.find(by_rank_[index]);
                 if (found == connections_.end()) return;
                 found->second.frames.send(type, std::move(payload), std::move(fds));
               },
           .abort_all =
               [this](const SharedBytes& error) {
                 for (auto& [id, connection] : connections_) {
                   if (connection.stage == Stage::challenged) continue;
                   connection.frames.send(FrameType::abort, error);
                 }
               },
           .strangers = [this] { return strangers_text(); }}) {
  if (!epoll_) throw system_error("epoll_create1", errno);
  if (!wake_) throw system_error("eventfd", errno);
  watch(wake_.get(), kWakeId);
  for (std::size_t i = 0; i < options_.listeners.size(); ++i) {
    watch(options_.listeners[i].get(), kListenerIds + i);
  }
  for (std::size_t rank = 0; rank < options_.connections.size(); ++rank) {
    add(std::move(options_.connections[rank]), static_cast<int>(rank));
  }
  thread_ = std::thread([this] { run(); });
  // A program may fork as soon as it has made its id. A thread that is still starting holds locks
  // of the allocator or the loader now and then, and the child would find such a lock held for
  // ever; one that has begun its first turn, with nobody connected, holds none.
  running_.wait();
}

Server::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void Server::Impl::drain(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (rank < 0 || index >= by_rank_.size()) return;
  const auto found = connections_.find(by_rank_[index]);
  if (found != connections_.end()) serve(found->first, found->second);
}

void Server::Impl::watch(int fd, std::uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw system_error("epoll_ctl", errno);
  }
}

void Server::Impl::add(Fd fd, int made_for) {
  const std::uint64_t id = next_id_++;
  watch(fd.get(), id);
  Connection& connection = connections_.emplace(id, std::move(fd)).first->second;
  connection.watched = EPOLLIN;
  connection.made_for = made_for;
  connection.nonce = random_bytes<Nonce>();
  // An inherited socket is silent until its program joins, if it ever does.
  if (made_for < 0) connection.patience = Deadline::after(kStrangerPatience);
  connection.frames.send(FrameType::challenge,
                         Bytes(connection.nonce.begin(), connection.nonce.end()));
}

std::size_t Server::Impl::strangers() const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
        return entry.second.stage == Stage::challenged && entry.second.made_for < 0;
      }));
}

void Server::Impl::accept_from(int listener) {
  try {
    while (Fd fd = accept_one(listener)) {
      if (strangers() < kMaxStrangers) add(std::move(fd), -1);
    }
  } catch (const Error& error) {
    // Left in the queue it would wake this thread for ever, so it is taken and dropped.
    last_refusal_ = error.cause();
    ++refused_;
    spare_.reset();
    const Fd dropped(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    log(LogLevel::info, "rendezvous: dropped a connection: {}", error.what());
  }
}

void Server::Impl::serve(std::uint64_t id, Connection& connection) {
  try {
    while (auto frame = connection.frames.receive()) {
      if (connection.refused) break;
      switch (connection.stage) {
        case Stage::challenged:
          on_hello(connection, *frame);
          break;
        case Stage::proven:
          on_claim(id, connection, *frame);
          break;
        case Stage::seated:
          membership_.on_frame(connection.rank, std::move(*frame));
          break;
      }
    }
    connection.frames.flush();
  } catch (const Error& error) {
    if (connection.stage == Stage::challenged) return refuse(connection, error.cause());
    membership_.fail(with(error, [&](Error::Parts& p) {
      if (p.rank >= 0) return;
      // What this process lacks is not the fault of the rank that it serves.
      const bool own = p.code != ErrorCode::protocol_violation;
      p.rank = own ? membership_.holder() : connection.rank;
    }));
  }
}

void Server::Impl::on_hello(Connection& connection, const Frame& frame) {
  if (frame.type != FrameType::hello) return refuse(connection, "it spoke before it proved itself");
  Reader reader(frame.payload);
  const auto nonce = read_array<Nonce>(reader);
  const auto proof = read_array<Digest>(reader);
  reader.end();
  if (!equal(proof, client_proof(options_.secret, connection.nonce, nonce))) {
    return refuse(connection, "it doesn't know the job's secret", true);
  }
  const Digest mine = server_proof(options_.secret, connection.nonce, nonce);
  connection.stage = Stage::proven;
  connection.patience = Deadline::never();
  connection.frames.set_limit(kRankLimit);
  connection.frames.send(FrameType::proof, Bytes(mine.begin(), mine.end()));
}

void Server::Impl::on_claim(std::uint64_t id, Connection& connection, const Frame& frame) {
  if (frame.type != FrameType::claim) Reader::fail("a proven rank must claim its seat");
  const Claim claim = Claim::decode(frame.payload);
  connection.patience = Deadline::never();
  const int fd = connection.frames.fd();
  const Member member{.local = is_unix(fd), .address = peer_ip(fd)};
  // A socketpair carries the credentials of its maker, the launcher.
  const int pid = member.local && connection.made_for < 0 ? peer_pid(fd) : 0;
  if (membership_.failure()) {
    Writer bytes;
    encode(*membership_.failure(), bytes);
    connection.frames.send(FrameType::abort, bytes.take());
    return;
  }
  connection.rank = claim.rank;
  if (claim.rank >= 0 && claim.rank < kMaxRanks) {
    const auto index = static_cast<std::size_t>(claim.rank);
    if (by_rank_.size() <= index) by_rank_.resize(index + 1);
    if (by_rank_[index] == 0) by_rank_[index] = id;  // a second claimant isn't the rank's address
  }
  if (membership_.claim(claim, connection.made_for, member, pid)) connection.stage = Stage::seated;
}

void Server::Impl::refuse(Connection& connection, std::string_view why, bool secret_wrong) {
  if (connection.refused) return;
  const std::string from = peer_ip(connection.frames.fd());
  last_refusal_ = from.empty() ? std::string(why) : fmt::format("from {}: {}", from, why);
  ++refused_;
  log(LogLevel::info, "rendezvous: refused a connection {}", last_refusal_);
  Writer reason;
  reason.put(secret_wrong);
  reason.text(why);
  connection.frames.send(FrameType::refusal, reason.take());
  connection.refused = true;
}

std::string Server::Impl::strangers_text() const {
  if (refused_ == 0) return {};
  return fmt::format("{} connections were refused, the last {}", refused_, last_refusal_);
}

void Server::Impl::drop_closed_and_late() {
  std::vector<std::uint64_t> gone;
  for (auto& [id, connection] : connections_) {
    if (connection.stage != Stage::seated && connection.patience.passed()) {
      refuse(connection, "it didn't prove itself in time");
    }
    if (connection.frames.closed() || connection.refused) gone.push_back(id);
  }
  for (const std::uint64_t id : gone) {
    const Connection& connection = connections_.at(id);
    const int rank = connection.stage == Stage::seated ? connection.rank : -1;
    connections_.erase(id);  // closes it, which takes it out of the epoll set
    if (rank >= 0) membership_.on_close(rank);
  }
}

void Server::Impl::turn() {
  epoll_event events[64];
  Deadline due = Deadline::never();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    drop_closed_and_late();
    due = membership_.tick();
    for (auto& [id, connection] : connections_) {
      if (connection.stage != Stage::seated) due = due.earlier(connection.patience);
      const std::uint32_t wanted = EPOLLIN | (connection.frames.wants_write() ? EPOLLOUT : 0u);
      if (wanted == connection.watched) continue;
      epoll_event event{.events = wanted, .data = {.u64 = id}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.frames.fd(), &event);
      connection.watched = wanted;
    }
  }
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), due.poll_ms());
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kWakeId) {
      std::uint64_t drained;
      [[maybe_unused]] const auto n = ::read(wake_.get(), &drained, sizeof drained);
    } else if (id >= kListenerIds) {
      accept_from(options_.listeners[id - kListenerIds].get());
    } else if (const auto found = connections_.find(id); found != connections_.end()) {
      serve(found->first, found->second);
    }
  }
}

void Server::Impl::run() {
  running_.count_down();
  for (;;) {
    try {
      turn();
    } catch (const std::exception& error) {
      log(LogLevel::error, "rendezvous: {}", error.what());
      const std::lock_guard lock(mutex_);
      membership_.fail(
          Error({.code = ErrorCode::system_call,
                 .rank = membership_.holder(),
                 .cause = fmt::format("the rendezvous server failed: {}", error.what()),
                 .remedy = "look at the limits of its process: memory, open files"}));
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) break;
  }
  const std::lock_guard lock(mutex_);
  // The goodbye of the rank that holds this server may wait here, and the others need to hear of
  // it.
  for (auto& [id, connection] : connections_) {
    if (connection.stage == Stage::seated) serve(id, connection);
  }
  const Deadline patience = Deadline::after(kFarewell);
  for (auto& [id, connection] : connections_) {
    if (connection.stage == Stage::seated) connection.frames.send(FrameType::goodbye);
    // Results that are still queued are somebody's bring-up.
    connection.frames.flush_until(patience);
  }
}

Server::Server(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;

void Server::report_end(int rank, const Error& reason) {
  const std::lock_guard lock(impl_->mutex());
  impl_->drain(rank);
  impl_->membership().report_end(rank, reason);
  impl_->wake();
}

void Server::abort(const Error& reason) {
  const std::lock_guard lock(impl_->mutex());
  impl_->membership().fail(reason);
  impl_->wake();
}

std::optional<Error> Server::failure() const {
  const std::lock_guard lock(impl_->mutex());
  return impl_->membership().failure();
}

void Server::use_page(ControlPage page) {
  const std::lock_guard lock(impl_->mutex());
  impl_->membership().use_page(std::move(page));
}

std::optional<Crash> Server::crash_of(int rank) const {
  const std::lock_guard lock(impl_->mutex());
  return impl_->membership().crash_of(rank);
}

std::string Server::step_of(int rank) const {
  const std::lock_guard lock(impl_->mutex());
  return impl_->membership().step_of(rank);
}

}  // namespace ranklink
