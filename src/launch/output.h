#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace ranklink {

/// Puts bytes that arrive in pieces together to lines.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxOutputLine = 64 * 1024;

  /// A line longer than `longest` is handed on in pieces of that size.
  explicit LineSplitter(std::size_t longest = kMaxOutputLine) : longest_(longest) {}

  using Sink = std::function<void(std::string_view line)>;  ///< gets lines without their newline
  void feed(std::string_view bytes, const Sink& sink);
  /// Hands on what is left of a last line that has no newline.
  void finish(const Sink& sink);

 private:
  std::size_t longest_;
  std::string partial_;
  bool cut_ = false;  ///< the last piece ended for its length
};

/// The last lines that a rank wrote to stderr, for the text of its failure.
class Tail {
 public:
  static constexpr std::size_t kLines = 20;

  void add(std::string_view line);
  /// The lines joined by ` | `, without control characters or broken UTF-8; of longer text the last
  /// `limit` bytes.
  std::string text(std::size_t limit = 1000) const;

 private:
  std::deque<std::string> lines_;
};

/// Where the ranks' lines go: stdout or stderr of the launcher. Never blocks on a reader that
/// doesn't read, since the launcher has ranks to watch: what can't be written yet waits here.
class Outlet {
 public:
  explicit Outlet(int fd);

  void write_line(std::string_view prefix, std::string_view line);
  /// Writes what the reader takes now.
  void flush();

  /// To be polled for POLLOUT while anything is queued.
  int fd() const { return fd_; }
  std::size_t queued() const { return queue_.size() - written_; }
  /// Ranks should be read no further until the queue is shorter.
  bool full() const { return queued() > 1024 * 1024; }
  /// The errno of a reader that went away (EPIPE) or of a disk that is full; 0 while it takes
  /// bytes. What was queued is dropped then.
  int broken() const { return broken_; }

 private:
  Fd own_;  ///< the same file, opened again so that non-blocking mode stays ours
  int fd_;
  bool nonblocking_ = false;
  bool regular_ = false;
  std::string queue_;
  std::size_t written_ = 0;
  int broken_ = 0;
};

/// True when both descriptors lead to one file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace ranklink
