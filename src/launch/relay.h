#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/launcher.h"
#include "launch/output.h"
#include "launch/poller.h"
#include "launch/spawn.h"

namespace ranklink {

/// Passes on what ranks print and report, line by line.
class Relay {
 public:
  Relay(const LaunchOptions& options, RankProcesses& processes, Poller& poller);

  void handle(const Ready& ready);
  /// Reads what a rank that has ended left in its pipes.
  void drain(int rank);
  /// Reads what is left in all pipes, and waits for slow readers, unless `give_up` says not to.
  void finish(const std::function<bool()>& give_up);
  /// The last lines that a rank wrote to stderr.
  std::string last_lines(int rank) const;

 private:
  struct Stream {
    Source source;
    int rank;
    Fd* pipe;    ///< of RankProcess
    Outlet* to;  ///< null for messages
    LineSplitter lines;
    bool watched = false;
  };

  struct Destination {
    std::unique_ptr<Outlet> outlet;
    bool watched = false;  ///< for room to write
    bool full = false;     ///< its ranks aren't read
  };

  Outlet* add_outlet(int fd);
  Stream& stream(Source source, int rank);
  /// Reads one piece; false when nothing is there for now, or will be.
  bool read_some(Stream& stream);
  void pass_on(Stream& stream, std::string_view line);
  void close(Stream& stream);
  void watch(Stream& stream, bool wanted);
  /// Writes, and starts or stops to read ranks by how much their reader is behind.
  void flush();
  void break_off(const Outlet& outlet);

  const LaunchOptions& options_;
  Poller& poller_;
  std::vector<Stream> streams_;        ///< three a rank: output, errors, message
  std::vector<std::string> prefixes_;  ///< by rank
  std::vector<Tail> tails_;            ///< by rank
  std::vector<Destination> outlets_;
  std::vector<char> buffer_;
};

}  // namespace ranklink
