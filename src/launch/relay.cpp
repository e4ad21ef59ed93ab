#include "launch/relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "autopsy/crash_watch.h"
#include "base/error.h"
#include "base/log.h"

namespace ranklink {
namespace {

constexpr std::size_t kPiece = 64 * 1024;
constexpr std::size_t kLongestMessage = 64 * 1024 * 1024;
// A stray of the rank may go on writing; what the rank itself left is no more than a pipe holds.
constexpr int kDrainPieces = 16;

}  // namespace

Relay::Relay(const LaunchOptions& options, RankProcesses& processes, Poller& poller)
    : options_(options), poller_(poller), tails_(processes.ranks.size()), buffer_(kPiece) {
  Outlet* out = nullptr;
  Outlet* err = nullptr;
  if (options.prefix) {
    out = add_outlet(STDOUT_FILENO);
    // With 2>&1 one queue for both, so that neither cuts into the other's lines.
    err = same_file(STDOUT_FILENO, STDERR_FILENO) ? out : add_outlet(STDERR_FILENO);
  }
  streams_.reserve(processes.ranks.size() * 3);
  for (std::size_t i = 0; i < processes.ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    RankProcess& process = processes.ranks[i];
    prefixes_.push_back(fmt::format("[{}] ", rank));
    streams_.push_back({Source::output, rank, &process.output, out, LineSplitter()});
    streams_.push_back({Source::errors, rank, &process.errors, err, LineSplitter()});
    streams_.push_back(
        {Source::message, rank, &process.message, nullptr, LineSplitter(kLongestMessage)});
  }
  for (Stream& stream : streams_) watch(stream, true);
}

Outlet* Relay::add_outlet(int fd) {
  return outlets_.emplace_back(Destination{std::make_unique<Outlet>(fd)}).outlet.get();
}

Relay::Stream& Relay::stream(Source source, int rank) {
  const auto offset = static_cast<std::size_t>(source) - static_cast<std::size_t>(Source::output);
  return streams_[static_cast<std::size_t>(rank) * 3 + offset];
}

void Relay::watch(Stream& stream, bool wanted) {
  if (!*stream.pipe || stream.watched == wanted) return;
  // Removed and not just muted: epoll reports a hang-up even where no event is asked for.
  if (wanted) {
    poller_.add(stream.pipe->get(), EPOLLIN, stream.source, stream.rank);
  } else {
    poller_.remove(stream.pipe->get());
  }
  stream.watched = wanted;
}

void Relay::close(Stream& stream) {
  watch(stream, false);
  stream.pipe->reset();
  stream.lines.finish([&](std::string_view line) { pass_on(stream, line); });
}

void Relay::pass_on(Stream& stream, std::string_view line) {
  const auto rank = static_cast<std::size_t>(stream.rank);
  if (stream.source == Source::message) {
    if (options_.on_message) options_.on_message(stream.rank, std::string(line));
    return;
  }
  // What a crash says there, it says better on the control page.
  if (stream.source == Source::errors && !line.starts_with(CrashWatch::kMark)) {
    tails_[rank].add(line);
  }
  stream.to->write_line(prefixes_[rank], line);
}

bool Relay::read_some(Stream& stream) {
  if (!*stream.pipe) return false;
  const ssize_t n = ::read(stream.pipe->get(), buffer_.data(), buffer_.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (n <= 0) {
    close(stream);
    return false;
  }
  stream.lines.feed({buffer_.data(), static_cast<std::size_t>(n)},
                    [&](std::string_view line) { pass_on(stream, line); });
  return true;
}

void Relay::handle(const Ready& ready) {
  if (ready.source != Source::outlet) read_some(stream(ready.source, ready.rank));
  flush();
}

void Relay::flush() {
  for (std::size_t i = 0; i < outlets_.size(); ++i) {
    Destination& to = outlets_[i];
    Outlet& outlet = *to.outlet;
    const bool was_broken = outlet.broken() != 0;
    outlet.flush();
    if (const bool waiting = outlet.queued() > 0; waiting != to.watched) {
      if (waiting) {
        poller_.add(outlet.fd(), EPOLLOUT, Source::outlet, static_cast<int>(i));
      } else {
        poller_.remove(outlet.fd());
      }
      to.watched = waiting;
    }
    if (outlet.broken() != 0 && !was_broken) break_off(outlet);
    if (outlet.full() != to.full) {
      to.full = outlet.full();
      for (Stream& stream : streams_) {
        if (stream.to == &outlet) watch(stream, !to.full);
      }
    }
  }
}

void Relay::break_off(const Outlet& outlet) {
  if (outlet.broken() != EPIPE) {
    log(LogLevel::error, "the ranks' output can't be written: {}", errno_text(outlet.broken()));
  }
  // Ranks that write on get what they would get without a launcher between: SIGPIPE.
  for (Stream& stream : streams_) {
    if (stream.to == &outlet && *stream.pipe) close(stream);
  }
}

void Relay::drain(int rank) {
  for (const Source source : {Source::output, Source::errors, Source::message}) {
    for (int i = 0; i < kDrainPieces && read_some(stream(source, rank)); ++i) {
    }
  }
  flush();
}

void Relay::finish(const std::function<bool()>& give_up) {
  const auto wait_until = [&](Outlet& outlet, auto&& done) {
    while (!done()) {
      if (give_up()) return false;
      pollfd ready{.fd = outlet.fd(), .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, 100);
      outlet.flush();
    }
    return true;
  };
  for (Stream& stream : streams_) {
    while (read_some(stream)) {
      if (stream.to == nullptr) continue;
      stream.to->flush();
      if (!wait_until(*stream.to, [&] { return !stream.to->full(); })) return;
    }
    if (*stream.pipe) close(stream);
  }
  for (const Destination& to : outlets_) {
    to.outlet->flush();
    if (!wait_until(*to.outlet, [&] { return to.outlet->queued() == 0; })) return;
  }
}

std::string Relay::last_lines(int rank) const {
  return tails_[static_cast<std::size_t>(rank)].text();
}

}  // namespace ranklink
