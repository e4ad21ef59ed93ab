#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collective/outbox_writer.h"
#include "ranklink/collective.hpp"
#include "route/routes.h"

namespace ranklink {

/// What an algorithm works with: the routes, and room that lasts, so that no call allocates.
struct Workspace {
  explicit Workspace(Routes& r)
      : routes(r),
        inputs(static_cast<std::size_t>(r.size())),
        shared(static_cast<std::size_t>(r.size())) {}

  Routes& routes;
  OutboxWriter outbox;
  std::vector<const std::byte*> inputs;  ///< for reduce(), by rank
  /// Of exchange(), by transfer.
  struct Progress {
    std::size_t moved = 0;  ///< bytes
    bool agreed = false;    ///< the receiver has granted it, or was told where to pull it from
    bool done = false;
  };
  std::vector<Progress> transfers;
  std::vector<std::byte> aside;  ///< of all_to_all in place, by pull
  /// Of a call on a SharedBuffer: where it stands here, by rank.
  std::vector<std::byte*> shared;
};

/// What an algorithm works by, besides messages.
enum class Needs {
  messages,
  shared_buffer,  ///< a SharedBuffer that all ranks have mapped
  pull,           ///< that all ranks can have the kernel copy from each other's memory
};

/// One way of doing a collective. All ranks run the same one with the same call; what it does
/// depends on nothing else, so that it is right on whatever routes there are. Adding one is adding
/// a file and a row of the table.
struct Algorithm {
  Collective collective;
  std::string_view name;
  Needs needs;
  void (*run)(Workspace&, const Call&);
};

std::span<const Algorithm* const> algorithm_table();

extern const Algorithm kAllReduceFlat;
extern const Algorithm kAllReduceTwoPhase;
extern const Algorithm kAllReduceDirect;
extern const Algorithm kAllGatherFlat;
extern const Algorithm kAllGatherDirect;
extern const Algorithm kReduceScatterFlat;
extern const Algorithm kReduceScatterDirect;
extern const Algorithm kBroadcastFlat;
extern const Algorithm kBroadcastDirect;
extern const Algorithm kAllGatherPull;
extern const Algorithm kBroadcastPull;
extern const Algorithm kGatherPull;
extern const Algorithm kScatterPull;
extern const Algorithm kAllToAllPull;
extern const Algorithm kReduceFlat;
extern const Algorithm kGatherFlat;
extern const Algorithm kScatterFlat;
extern const Algorithm kAllToAllFlat;
extern const Algorithm kAllToAllDirect;
extern const Algorithm kAllToAllV;
extern const Algorithm kExchangeGrants;
extern const Algorithm kExchangePull;
extern const Algorithm kBarrierFlat;
extern const Algorithm kBarrierDissemination;

}  // namespace ranklink
