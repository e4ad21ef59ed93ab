#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/secret.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/frame.h"

namespace ranklink {

/// Where the ranks of a job meet, and the secret they know each other by.
struct MeetingPoint {
  std::vector<std::string> endpoints;  ///< tried in this order
  Secret secret;

  /// As the bytes of a UniqueId. Endpoints that don't fit are left out.
  Bytes encode(std::size_t limit) const;
  /// Throws Error(protocol_violation).
  static MeetingPoint decode(ByteView bytes);
};

/// Opens a meeting point on this host: a socket file in the first directory that takes one, and TCP
/// on all addresses. Throws Error(rendezvous_unusable) when neither is possible.
std::pair<Listening, MeetingPoint> open_meeting_point(const std::string& socket_directory);

/// What the file of a file:// rendezvous says. Text, so that people can read whose it is.
struct MeetingFile {
  std::string boot_id;
  std::string host;
  int pid = 0;
  std::uint64_t start_time = 0;
  MeetingPoint point;  ///< its secret is empty when all ranks know it otherwise

  std::string text() const;
  /// Throws Error(protocol_violation) for text that is none, or only half written.
  static MeetingFile parse(std::string_view text);
};

std::string meeting_file_path(const std::string& directory);
/// Replaces the file at once, so that nobody reads half of it. A file of a job that still lives on
/// this host is an error that says whose it is; one whose owner is gone is replaced.
void write_meeting_file(const std::string& directory, const MeetingFile& file);
/// Nothing while there is none. Throws Error for one that can't be read.
std::optional<MeetingFile> read_meeting_file(const std::string& directory);

/// Connects to the point and shakes hands, again and again until it works: whoever opens the point
/// may come later than this process. `look` gives the point as it is known now (nothing: not yet).
/// A refusal ends it at once unless `retry_refusals`, for a point that may be an old job's.
FrameConnection connect_to(const std::function<std::optional<MeetingPoint>()>& look,
                           bool retry_refusals, Deadline deadline);

}  // namespace ranklink
