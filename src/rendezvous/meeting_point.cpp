#include "rendezvous/meeting_point.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/log.h"
#include "inspect/facts.h"
#include "rendezvous/client.h"

namespace ranklink {
namespace {

constexpr std::uint32_t kMagic = 0x31444952;  // "RID1"
constexpr std::size_t kMaxAddresses = 4;
constexpr std::size_t kMaxFileBytes = 16'384;
constexpr std::string_view kFirstLine = "ranklink rendezvous 1";
constexpr std::string_view kLastLine = "end";
constexpr Milliseconds kAttempt{5000};

Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc{} || stop != text.data() + i + 2) Reader::fail("not hexadecimal");
    bytes.push_back(static_cast<std::byte>(value));
  }
  if (text.size() % 2 != 0) Reader::fail("not hexadecimal");
  return bytes;
}

template <typename T>
T number_of(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) Reader::fail("not a number");
  return value;
}

// Whether the process that wrote the file still lives; only its own host can tell.
bool lives_here(const MeetingFile& file, const Facts& mine) {
  if (file.boot_id != mine.boot_id) return false;
  const std::uint64_t start_time = process_start_time(file.pid);
  return start_time != 0 && start_time == file.start_time;
}

}  // namespace

Bytes MeetingPoint::encode(std::size_t limit) const {
  std::vector<std::string> fitting;
  std::size_t used = 4 + 32 + 4;
  for (const std::string& endpoint : endpoints) {
    if (used + 4 + endpoint.size() > limit) continue;
    used += 4 + endpoint.size();
    fitting.push_back(endpoint);
  }
  Writer w;
  w.put(kMagic);
  w.raw(secret.reveal_bytes());
  w.put(static_cast<std::uint32_t>(fitting.size()));
  for (const std::string& endpoint : fitting) w.text(endpoint);
  return w.take();
}

MeetingPoint MeetingPoint::decode(ByteView bytes) {
  Reader r(bytes);
  if (r.get<std::uint32_t>() != kMagic) Reader::fail("not a unique id of ranklink");
  MeetingPoint point;
  point.secret = Secret::from_bytes(r.raw(32));
  const std::size_t count = r.count(4);
  if (count == 0) Reader::fail("a unique id without endpoints");
  for (std::size_t i = 0; i < count; ++i) point.endpoints.push_back(r.text(256));
  return point;  // zeros may follow
}

std::pair<Listening, MeetingPoint> open_meeting_point(const std::string& socket_directory) {
  Listening listening;
  std::string why;
  for (const std::string& directory : socket_directories(socket_directory)) {
    try {
      add_unix_listener(listening, directory);
      break;
    } catch (const Error& error) {
      why = error.cause();
      log(LogLevel::info, "no socket file in {}: {}", directory, error.cause());
    }
  }
  try {
    const auto addresses = host_addresses(kMaxAddresses);
    if (!addresses.empty()) add_tcp_listener(listening, "", addresses);
  } catch (const Error& error) {
    why += (why.empty() ? "" : "; ") + error.cause();
  }
  if (listening.endpoints.empty()) {
    throw Error(
        {.code = ErrorCode::rendezvous_unusable,
         .step = "join",
         .cause = fmt::format("neither a socket file nor a TCP port can be opened: {}", why),
         .remedy = "name a writable directory in RANKLINK_SOCKET_DIR"});
  }
  MeetingPoint point{listening.endpoints, Secret::random()};
  return {std::move(listening), std::move(point)};
}

std::string MeetingFile::text() const {
  std::string text = fmt::format("{}\nboot_id {}\nhost {}\npid {}\nstart_time {}\n", kFirstLine,
                                 boot_id, host, pid, start_time);
  for (const std::string& endpoint : point.endpoints)
    text += fmt::format("endpoint {}\n", endpoint);
  if (!point.secret.empty()) text += fmt::format("secret {}\n", point.secret.reveal_hex());
  text += fmt::format("{}\n", kLastLine);
  return text;
}

MeetingFile MeetingFile::parse(std::string_view text) {
  if (text.size() > kMaxFileBytes) Reader::fail("a rendezvous file that is too long");
  MeetingFile file;
  bool first = true;
  bool last = false;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) Reader::fail("a rendezvous file that ends in a line");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(first, false)) {
      if (line != kFirstLine) Reader::fail("not a rendezvous file of this version");
      continue;
    }
    if (line == kLastLine) {
      last = true;
      break;
    }
    const auto space = line.find(' ');
    if (space == std::string_view::npos) Reader::fail("a rendezvous file with a line of one word");
    const std::string_view name = line.substr(0, space);
    const std::string_view value = line.substr(space + 1);
    if (name == "boot_id") file.boot_id = value;
    if (name == "host") file.host = value;
    if (name == "pid") file.pid = number_of<int>(value);
    if (name == "start_time") file.start_time = number_of<std::uint64_t>(value);
    if (name == "secret") file.point.secret = Secret::from_bytes(from_hex(value));
    if (name == "endpoint" && file.point.endpoints.size() < 16) {
      file.point.endpoints.emplace_back(value);
    }
  }
  if (!last) Reader::fail("a rendezvous file that is only half written");
  return file;
}

std::string meeting_file_path(const std::string& directory) {
  return directory + "/ranklink.rendezvous";
}

void write_meeting_file(const std::string& directory, const MeetingFile& file) {
  const std::string path = meeting_file_path(directory);
  try {
    if (const auto old = read_meeting_file(directory); old && lives_here(*old, inspect_process())) {
      throw Error({.code = ErrorCode::rendezvous_unusable,
                   .rank = 0,
                   .step = "join",
                   .cause = fmt::format("{} belongs to a job that lives: pid {} on host {}", path,
                                        old->pid, old->host),
                   .remedy = "give each job a directory of its own"});
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::protocol_violation) throw;
    log(LogLevel::warn, "{} is replaced: {}", path, error.cause());
  }
  // Whoever can read the secret belongs to the job; without one in it, anybody may read the file.
  const mode_t mode = file.point.secret.empty() ? 0644 : 0600;
  const auto suffix = random_bytes<std::array<std::byte, 8>>();
  const std::string scratch = fmt::format("{}.{}", path, to_hex(suffix));
  const Fd fd(::open(scratch.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  const std::string text = file.text();
  const bool written =
      fd && ::fchmod(fd.get(), mode) == 0 &&
      ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::rename(scratch.c_str(), path.c_str()) == 0;
  if (!written) {
    const int error = errno;
    if (fd) ::unlink(scratch.c_str());
    throw Error({.code = ErrorCode::rendezvous_unusable,
                 .rank = 0,
                 .step = "join",
                 .cause = fmt::format("can't write {}: {}", path, errno_text(error)),
                 .remedy = "name a directory that exists and is writable for rank 0"});
  }
}

std::optional<MeetingFile> read_meeting_file(const std::string& directory) {
  const std::string path = meeting_file_path(directory);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw Error({.code = ErrorCode::rendezvous_unreachable,
                 .step = "join",
                 .cause = fmt::format("can't read {}: {}", path, errno_text(errno)),
                 .remedy =
                     "run all ranks as one user, or set RANKLINK_SECRET on all of them, which "
                     "makes the file readable for all"});
  }
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t size = 0;
  for (;;) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("read " + path, errno);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return MeetingFile::parse(text);
}

FrameConnection connect_to(const std::function<std::optional<MeetingPoint>()>& look,
                           bool retry_refusals, Deadline deadline) {
  std::optional<Error> last;
  Milliseconds pause{1};
  for (;;) {
    try {
      if (const auto point = look()) {
        std::string causes;
        for (const std::string& endpoint : point->endpoints) {
          const Deadline patience = deadline.earlier(Deadline::after(kAttempt));
          try {
            return shake_hands(connect_endpoint(endpoint, patience), point->secret, patience);
          } catch (const Error& error) {
            last = with(error, [&](Error::Parts& p) {
              p.step = "join";
              p.cause = fmt::format("{}{}: {}", causes, endpoint, error.cause());
            });
            causes = last->cause() + "; ";
            if (!retry_refusals && (error.code() == ErrorCode::secret_mismatch ||
                                    error.code() == ErrorCode::setting_invalid)) {
              throw *last;
            }
          }
        }
      }
    } catch (const Error& error) {
      if (!retry_refusals && (error.code() == ErrorCode::secret_mismatch ||
                              error.code() == ErrorCode::setting_invalid)) {
        throw;
      }
      last = error;
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(pause, deadline.left()));
    pause = std::min(pause * 2, Milliseconds(50));
  }
  if (last) {
    throw with(*last, [](Error::Parts& p) { p.cause += "; tried until the deadline"; });
  }
  throw Error({.code = ErrorCode::rendezvous_unreachable,
               .step = "join",
               .cause = "nobody has opened the rendezvous before the deadline",
               .remedy = "start rank 0, with the same RANKLINK_RENDEZVOUS"});
}

}  // namespace ranklink
