#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "device/device.h"
#include "exchange/circle.h"
#include "exchange/introduction.h"
#include "exchange/meeting.h"
#include "ranklink/report.hpp"
#include "rendezvous/client.h"

namespace ranklink {

/// A pattern in private memory, for peers that try to read it.
using PullProbe = std::array<std::byte, 64>;

/// What mechanisms work with: one rank's view of the group during bring-up.
struct Surroundings {
  Client& client;
  Device& device;
  Meeting& meeting;
  std::vector<Introduction> ranks;
  bool all_local = true;            ///< the rendezvous can pass descriptors between all ranks
  std::map<int, Met> pair_sockets;  ///< to those that it can't pass descriptors to
  PullProbe probe{};                ///< stays where it is, and as make_offer() fills it
  std::uint32_t trial = 0;          ///< the tag of what is sent now

  int rank() const { return client.rank(); }
  int size() const { return client.size(); }
  Party party(int r) const {
    const auto i = static_cast<std::size_t>(r);
    return {r, ranks[i].facts, client.seating().members[i]};
  }
  /// Whether the rendezvous can pass descriptors between this rank and `peer`.
  bool relayed(int peer) const { return party(rank()).member.local && party(peer).member.local; }
};

/// Memory of this rank as it is offered to the others, and theirs as offered to it.
struct Offer {
  const Memory* memory = nullptr;
  std::vector<Handle> handles;           ///< of every rank's memory, by rank in the job
  std::vector<std::int32_t> fd_numbers;  ///< of the descriptor behind it, in its owner's process
  std::vector<std::uint64_t> probes;     ///< where every rank's probe stands in its own memory
};

/// Exchanges handles; without memory this rank only takes part. All of the circle call it together.
Offer make_offer(Surroundings& around, Circle& circle, const Memory* memory, Deadline deadline);

/// What a mechanism made between this rank and a peer: the peer's memory or a stream to it.
struct Link {
  std::unique_ptr<Memory> memory;
  Fd stream;
  std::string how;  ///< for streams: `brokered`, `unix`, `tcp`
};

/// A link, or the verdict that says why there is none.
struct Attempt {
  Link link;
  std::optional<Verdict> no;
};
using Attempts = std::map<int, Attempt>;

/// One way for a rank to get at another's memory. Adding one is adding a file and a row.
struct Mechanism {
  std::string_view name;
  bool maps;  ///< gives a `mapped` route; otherwise a `stream`
  /// From the facts of both sides, a no if it can't work for `from` to get at memory of `to`.
  std::optional<Verdict> (*propose)(const Party& from, const Party& to);
  /// Tries it for real: gets at `importing`, lets `exporting` get at this rank. All of the circle
  /// call it together.
  Attempts (*connect)(Surroundings& around, Circle& circle, const Offer& offer,
                      const std::set<int>& importing, const std::set<int>& exporting,
                      Deadline deadline);
};

/// In the order of speed.
std::span<const Mechanism> mechanism_table();
const Mechanism& find_mechanism(std::string_view name);

/// A verdict of no, found at `rank`.
Verdict no_verdict(int rank, std::string cause, std::string remedy);
/// The verdict for an Error met while trying.
Verdict no_verdict(int rank, const Error& error);

extern const Mechanism kFdSocket;
extern const Mechanism kFdPidfd;
extern const Mechanism kStream;

}  // namespace ranklink
