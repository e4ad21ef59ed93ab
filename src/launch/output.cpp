#include "launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/printable.h"

namespace ranklink {

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (std::exchange(cut_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);  // ends the piece that went before, and is no empty line
      continue;
    }
    const auto newline = bytes.find('\n');
    const std::size_t take = std::min(newline == std::string_view::npos ? bytes.size() : newline,
                                      longest_ - partial_.size());
    const std::string_view head = bytes.substr(0, take);
    const bool whole = take == newline;
    bytes.remove_prefix(take + (whole ? 1 : 0));
    if (whole && partial_.empty()) {
      sink(head);  // the usual case needs no copy
      continue;
    }
    partial_ += head;
    if (!whole && partial_.size() < longest_) continue;
    cut_ = !whole;
    sink(partial_);
    partial_.clear();
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!partial_.empty()) sink(partial_);
  partial_.clear();
}

void Tail::add(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  if (lines_.size() == kLines) lines_.pop_front();
  lines_.emplace_back(line.substr(0, 500));
}

std::string Tail::text(std::size_t limit) const {
  std::string all;
  for (const std::string& line : lines_) {
    if (!all.empty()) all += " | ";
    all += printable(line);
  }
  if (all.size() <= limit) return all;
  std::size_t start = all.size() - limit;
  while (start < all.size() && (static_cast<unsigned char>(all[start]) & 0xc0) == 0x80) ++start;
  return "..." + all.substr(start);
}

Outlet::Outlet(int fd) : fd_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    broken_ = errno;
    return;
  }
  regular_ = S_ISREG(info.st_mode) || S_ISBLK(info.st_mode);
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
  // Setting O_NONBLOCK on the inherited file would set it for the shell that started us, too.
  own_.reset(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                    O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_APPEND));
  if (!own_) return;
  fd_ = own_.get();
  nonblocking_ = true;
}

void Outlet::write_line(std::string_view prefix, std::string_view line) {
  if (broken_ != 0) return;
  queue_.append(prefix).append(line).append("\n");
}

void Outlet::flush() {
  while (queued() > 0) {
    std::size_t chunk = queued();
    if (!nonblocking_ && !regular_) {
      // Poll promises room for this much, so that a blocking file doesn't block.
      pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
      if (::poll(&ready, 1, 0) <= 0) break;
      chunk = std::min<std::size_t>(chunk, PIPE_BUF);
    }
    const ssize_t n = ::write(fd_, queue_.data() + written_, chunk);
    if (n >= 0) {
      written_ += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      broken_ = errno;
      queue_.clear();
      written_ = 0;
    }
  }
  if (written_ == queue_.size() || written_ > 256 * 1024) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace ranklink
