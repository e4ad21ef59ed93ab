#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "exchange/decide.h"
#include "exchange/introduction.h"

namespace ranklink {

/// What the coordinator answers to the rows of verdicts (and, first, to the introductions).
struct Plan {
  bool decided = false;
  std::string mechanism;  ///< to be tried next
  PairSet pairs;          ///< between these
  Bytes decision;         ///< if decided, a Decision

  void encode(Writer& to) const;
  static Plan decode(Reader& from, int size);
};

/// The rows that ranks hand in on one mechanism: what each observed of both directions.
struct VerdictRow {
  struct Entry {
    int peer = 0;
    Verdict to_peer;     ///< this rank on the peer's memory
    Verdict from_peer;   ///< the peer's access, as seen in this rank's own memory
    bool linked = true;  ///< this rank got hold of the peer's memory, or of its end of the stream
  };
  std::vector<Entry> entries;

  Bytes encode() const;
  static VerdictRow decode(ByteView bytes);
};

/// Runs at the rendezvous server: turns what all ranks hand in into what all of them do next. Pure
/// but for remembering earlier rounds of the same bring-up.
class Coordinator {
 public:
  /// Rounds: `inspect`, `try/verdicts` and `agree` are its own, of others the rows are given to
  /// all.
  Bytes operator()(std::string_view round, const std::vector<Bytes>& rows);

 private:
  Bytes inspect(const std::vector<Bytes>& rows);
  Bytes take_verdicts(const std::vector<Bytes>& rows);
  Bytes agree(const std::vector<Bytes>& rows);
  Plan next_plan();

  int size_ = 0;
  std::string setting_;
  bool try_all_ = false;
  std::vector<std::string> ladder_;
  std::size_t rung_ = 0;
  PairSet pairs_;
  std::vector<VerdictMatrix> verdicts_;
  Digest digest_{};
  std::uint32_t epoch_ = 0;
};

/// All rows, one behind the other.
Bytes join_rows(const std::vector<Bytes>& rows);
std::vector<Bytes> split_rows(Reader& from, int size);

}  // namespace ranklink
