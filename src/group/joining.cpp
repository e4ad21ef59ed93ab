#include "group/joining.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/socket.h"
#include "exchange/coordinator.h"
#include "inspect/facts.h"
#include "rendezvous/client.h"
#include "rendezvous/meeting_point.h"

namespace ranklink {
namespace {

constexpr std::string_view kFile = "file://";

int number_from(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    throw Error({.code = ErrorCode::bad_argument,
                 .step = "join",
                 .cause = fmt::format("{} isn't set, and the program gives no number", name),
                 .remedy = "start the program with `ranklink run`, or set RANK, WORLD_SIZE and "
                           "RANKLINK_RENDEZVOUS for each rank"});
  }
  int value = 0;
  const char* end = text + std::string_view(text).size();
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end) {
    throw Error({.code = ErrorCode::bad_argument,
                 .step = "join",
                 .cause = fmt::format("{}='{}' is not a number", name, text),
                 .remedy = fmt::format("set {} to a number", name)});
  }
  return value;
}

// Meeting points that this process has opened for unique ids, by secret.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<HostedServer>> hosted;
};
Registry& registry() {
  static Registry registry;
  return registry;
}

std::shared_ptr<HostedServer> take_hosted(const Secret& secret) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  const auto found = known.hosted.find(secret.reveal_hex());
  // After a fork it is the parent that serves.
  if (found == known.hosted.end() || found->second->owner != ::getpid()) return nullptr;
  auto hosted = std::move(found->second);
  known.hosted.erase(found);
  return hosted;
}

Joined by_unique_id(const UniqueId& id, int rank, Deadline deadline) {
  MeetingPoint point = MeetingPoint::decode(id.bytes);
  // The process that made the id serves it as long as it lives, or, if it is rank 0, as long as
  // its group.
  auto hosted = rank == 0 ? take_hosted(point.secret) : nullptr;
  return {connect_to([&] { return point; }, false, deadline), point.secret, false,
          std::move(hosted)};
}

Joined by_store(const Options& options, int rank, Deadline deadline) {
  const std::string key = options.store_prefix + "/unique_id";
  UniqueId id;
  try {
    if (rank == 0) {
      id = make_unique_id();
      options.store->set(key, id.bytes);
    } else {
      const auto left = std::chrono::ceil<Milliseconds>(deadline.left());
      const auto bytes = options.store->get(key, std::min(left, Milliseconds(86'400'000)));
      if (bytes.size() != id.bytes.size()) Reader::fail("a store value that is no unique id");
      std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (rank == 0) take_hosted(MeetingPoint::decode(id.bytes).secret);  // nobody will come
    throw Error({.code = ErrorCode::rendezvous_unreachable,
                 .rank = rank,
                 .step = "join",
                 .cause = fmt::format("the store's {} of '{}' failed: {}",
                                      rank == 0 ? "set" : "get", key, error.what()),
                 .remedy = "check that rank 0 runs and that all ranks reach the store"});
  }
  return by_unique_id(id, rank, deadline);
}

Secret need_secret(const Settings& settings, const std::string& where) {
  if (settings.is_set("RANKLINK_SECRET")) {
    return Secret::from_text(settings.value("RANKLINK_SECRET"));
  }
  throw Error({.code = ErrorCode::setting_invalid,
               .step = "join",
               .cause = fmt::format("whoever reaches {} could join the job: it needs a secret, and "
                                    "RANKLINK_SECRET isn't set",
                                    where),
               .remedy = "export the same RANKLINK_SECRET on all ranks, as from: openssl rand -hex "
                         "32; or meet at file:///SHARED/DIRECTORY, which makes its own"});
}

Joined by_launcher(const Settings& settings, Deadline deadline) {
  static std::once_flag used;
  Fd socket;
  std::call_once(used,
                 [&] { socket.reset(std::atoi(settings.value("RANKLINK_LAUNCHER_FD").c_str())); });
  struct stat status {};
  if (!socket || ::fstat(socket.get(), &status) != 0 || !S_ISSOCK(status.st_mode)) {
    socket.release();
    throw Error({.code = ErrorCode::rendezvous_unreachable,
                 .step = "join",
                 .cause = "the launcher's socket, which a process can use for one group, is used "
                          "or closed",
                 .remedy = "make further groups with a unique id or a store; don't close inherited "
                           "descriptors before the first"});
  }
  ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  const Secret secret = need_secret(settings, "the launcher");
  return {shake_hands(std::move(socket), secret, deadline), secret, true, nullptr};
}

// A socket file at which nobody listens was left by a rank 0 that was killed.
Fd listen_or_take_over(const std::string& endpoint) {
  try {
    return listen_endpoint(endpoint);
  } catch (const Error&) {
    if (!endpoint.starts_with("unix://")) throw;
    try {
      connect_endpoint(endpoint, Deadline::after(Milliseconds(1000)));
    } catch (const Error& silent) {
      if (silent.cause().find("ECONNREFUSED") == std::string::npos) throw;
      ::unlink(endpoint.substr(7).c_str());
      return listen_endpoint(endpoint);
    }
    throw;
  }
}

Joined by_endpoint(const std::string& endpoint, const Settings& settings, const Place& place,
                   Deadline deadline) {
  const Secret secret = need_secret(settings, endpoint);
  std::shared_ptr<HostedServer> hosted;
  if (place.rank == 0) {
    hosted = std::make_shared<HostedServer>();
    hosted->listening.listeners.push_back(listen_or_take_over(endpoint));
    if (endpoint.starts_with("unix://")) hosted->listening.files.push_back(endpoint.substr(7));
    hosted->server = start_server(std::move(hosted->listening.listeners), secret, place.size);
  }
  MeetingPoint point{{endpoint}, secret};
  return {connect_to([&] { return point; }, false, deadline), secret, false, std::move(hosted)};
}

Joined by_directory(const std::string& directory, const Settings& settings, const Place& place,
                    Deadline deadline) {
  struct stat status {};
  errno = 0;
  if (::stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    throw Error({.code = place.rank == 0 ? ErrorCode::rendezvous_unusable
                                         : ErrorCode::rendezvous_unreachable,
                 .cause = fmt::format("RANKLINK_RENDEZVOUS=file://{}: {}", directory,
                                      errno == 0 ? "not a directory" : errno_text(errno)),
                 .remedy = "create the directory, and let all ranks see it (mount it into their "
                           "containers)"});
  }
  const bool secret_known = settings.is_set("RANKLINK_SECRET");
  Secret secret;
  if (secret_known) secret = Secret::from_text(settings.value("RANKLINK_SECRET"));
  std::shared_ptr<HostedServer> hosted;
  if (place.rank == 0) {
    hosted = std::make_shared<HostedServer>();
    auto [listening, point] = open_meeting_point(directory);
    if (!secret_known) secret = point.secret;
    point.secret = secret_known ? Secret() : secret;
    const Facts facts = inspect_process();
    write_meeting_file(directory,
                       {facts.boot_id, facts.hostname, facts.pid, facts.start_time, point});
    hosted->listening = std::move(listening);
    hosted->listening.files.push_back(meeting_file_path(directory));
    hosted->server = start_server(std::move(hosted->listening.listeners), secret, place.size);
  }
  const auto look = [&]() -> std::optional<MeetingPoint> {
    auto file = read_meeting_file(directory);
    if (!file) return std::nullopt;
    if (secret_known) file->point.secret = secret;
    secret = file->point.secret;
    return file->point;
  };
  // What is found there may be an earlier job's, until rank 0 replaces it.
  FrameConnection connection = connect_to(look, true, deadline);
  return {std::move(connection), secret, false, std::move(hosted)};
}

}  // namespace

HostedServer::~HostedServer() {
  if (owner == ::getpid()) return;
  static_cast<void>(server.release());
  listening.files.clear();
}

std::unique_ptr<Server> start_server(std::vector<Fd> listeners, const Secret& secret,
                                     std::optional<int> size) {
  Server::Options options;
  options.secret = secret;
  options.size = size;
  options.listeners = std::move(listeners);
  options.reduce = Coordinator();
  return std::make_unique<Server>(std::move(options));
}

UniqueId make_unique_id() {
  auto hosted = std::make_shared<HostedServer>();
  Settings settings;
  settings.read_environment(environ);
  auto [listening, point] = open_meeting_point(settings.value("RANKLINK_SOCKET_DIR"));
  hosted->listening = std::move(listening);
  hosted->server = start_server(std::move(hosted->listening.listeners), point.secret, std::nullopt);
  UniqueId id;
  const Bytes bytes = point.encode(id.bytes.size());
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.hosted.emplace(point.secret.reveal_hex(), std::move(hosted));
  return id;
}

Place find_place(const Options& options) {
  Place place;
  place.rank = options.rank ? *options.rank : number_from("RANK");
  place.size = options.size ? *options.size : number_from("WORLD_SIZE");
  if (place.size < 1) {
    throw Error({.code = ErrorCode::size_mismatch,
                 .step = "join",
                 .cause = fmt::format("a group of {} ranks", place.size),
                 .remedy = "set WORLD_SIZE to 1 or more"});
  }
  if (place.rank < 0 || place.rank >= place.size) {
    throw Error({.code = ErrorCode::rank_out_of_range,
                 .rank = place.rank,
                 .step = "join",
                 .cause = fmt::format("rank {} in a group of {}: ranks go from 0 to {}", place.rank,
                                      place.size, place.size - 1),
                 .remedy = "set RANK to a number below WORLD_SIZE"});
  }
  return place;
}

Joined find_rendezvous(const Options& options, const Settings& settings, const Place& place,
                       Deadline deadline) {
  if (options.unique_id && options.store) {
    throw Error({.code = ErrorCode::bad_argument,
                 .step = "join",
                 .cause = "both a unique id and a store are given",
                 .remedy = "give one of them"});
  }
  if (options.unique_id) return by_unique_id(*options.unique_id, place.rank, deadline);
  if (options.store) return by_store(options, place.rank, deadline);
  if (settings.is_set("RANKLINK_LAUNCHER_FD")) return by_launcher(settings, deadline);
  if (settings.is_set("RANKLINK_RENDEZVOUS")) {
    const std::string& where = settings.value("RANKLINK_RENDEZVOUS");
    if (where.starts_with(kFile)) {
      return by_directory(where.substr(kFile.size()), settings, place, deadline);
    }
    return by_endpoint(where, settings, place, deadline);
  }
  const char* address = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (address != nullptr && port != nullptr) {
    const std::string host = address;
    const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
    return by_endpoint(fmt::format("tcp://{}:{}", bracketed, port), settings, place, deadline);
  }
  throw Error({.code = ErrorCode::no_rendezvous,
               .rank = place.rank,
               .step = "join",
               .cause =
                   "neither a launcher, nor a unique id, nor a store, nor RANKLINK_RENDEZVOUS, "
                   "nor MASTER_ADDR and MASTER_PORT say where the ranks meet",
               .remedy = "start the program with `ranklink run -n N -- PROGRAM`, or set "
                         "RANKLINK_RENDEZVOUS=tcp://HOST:PORT on all ranks"});
}

}  // namespace ranklink
