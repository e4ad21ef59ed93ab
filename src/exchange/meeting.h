#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/secret.h"
#include "exchange/circle.h"
#include "exchange/introduction.h"
#include "rendezvous/client.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/frame.h"

namespace ranklink {

/// One rank's connection to another, or why there is none.
struct Met {
  std::optional<FrameConnection> connection;
  std::string how;    ///< the endpoint that worked
  std::string cause;  ///< what each endpoint answered, if none worked
};

/// The first frame on such a connection: who calls whom, proved with the secret and the job's id.
struct MeetFrame {
  std::uint32_t tag = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  Digest proof{};

  Bytes encode() const;
  static MeetFrame decode(ByteView bytes);
};

/// Lets ranks connect to each other without the rendezvous: by socket files in directories that
/// both see, and by TCP. For pairs that the rendezvous can't pass descriptors between.
class Meeting {
 public:
  enum class Reach { socket_files, all };

  Meeting(Client& client, Secret secret) : client_(client), secret_(std::move(secret)) {}

  /// Listens in this host's socket directories and, on the rank's address towards the rendezvous
  /// (or on all where there is none), by TCP.
  void listen(const std::string& socket_directory);
  /// Where it can be met: socket files first.
  std::vector<std::string> endpoints() const;
  /// Removes the socket files; nobody new can come by them. By TCP ranks can still be met.
  void stop_listening_on_files();

  /// Connects to each of `peers`; the higher rank calls, the lower one answers. All of the circle
  /// call it together, those without peers too.
  std::map<int, Met> meet(Circle& circle, const std::vector<Introduction>& ranks,
                          const std::set<int>& peers, Reach reach, Deadline deadline);

  /// Of the last meet: for each rank, the lower ranks that it reached by a socket file.
  const std::vector<std::set<int>>& reached_by_file() const { return reached_by_file_; }

 private:
  std::vector<int> all_listeners() const;
  Digest proof(std::string_view purpose, int from, int to) const;
  Met call(int peer, const Introduction& who, Reach reach, Deadline deadline);
  void answer(std::set<int> expected, std::map<int, Met>& met, Deadline deadline);

  Client& client_;
  Secret secret_;
  Listening files_;
  Listening tcp_;
  std::uint32_t tag_ = 0;
  std::vector<std::set<int>> reached_by_file_;
};

}  // namespace ranklink
