#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// Whether a mechanism worked between two ranks when it was tried, and if not, why.
struct Verdict {
  std::string mechanism;  ///< `fd+socket`, `fd+pidfd`, `stream`
  bool yes = false;
  bool tried = false;  ///< false: facts ruled it out, or an earlier mechanism worked
  int rank = -1;       ///< for a no: the rank at which it failed
  std::string cause;
  std::string remedy;
};

/// How one rank reaches another's memory.
struct RouteReport {
  int from = 0;
  int to = 0;
  std::string route;      ///< `self`, `mapped`, `stream`
  std::string mechanism;  ///< `fd+socket`, `fd+pidfd`, `stream`; empty for `self`
  std::vector<Verdict> verdicts;
};

struct RankReport {
  int rank = 0;
  std::int64_t pid = 0;  ///< in the rank's own pid namespace
  std::string host;
  std::string address;  ///< the rank's address towards the rendezvous, if it has one
  std::uint32_t uid = 0;
  std::string container;                        ///< runtime that holds it, or empty
  std::vector<std::uint64_t> namespaces;        ///< inodes: pid, net, ipc, uts, mnt, user
  std::vector<std::string> shares_with_rank_0;  ///< the kinds of namespace it shares with rank 0
};

/// One step of one rank, in milliseconds since the first rank began to join.
struct StepReport {
  int rank = 0;
  std::string step;
  double start_ms = 0;
  double end_ms = 0;
};

struct SettingReport {
  std::string name;
  std::string value;
  std::string origin;
};

/// What bring-up found and decided.
struct RANKLINK_PUBLIC Report {
  int rank = 0;  ///< the reporting rank
  int size = 0;
  std::uint32_t epoch = 0;
  std::string digest;   ///< of the decision; the same on every rank
  double ready_ms = 0;  ///< from the call of join to its end
  std::vector<RankReport> ranks;
  std::vector<RouteReport> routes;  ///< size * size, ordered by from, then to
  std::vector<StepReport> timeline;
  std::vector<SettingReport> settings;

  /// The report as JSON; docs/report.md describes it.
  std::string to_json() const;
};

}  // namespace ranklink
