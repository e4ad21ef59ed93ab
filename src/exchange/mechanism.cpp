#include "exchange/mechanism.h"

#include <fmt/format.h>

#include "exchange/coordinator.h"
#include "exchange/pattern.h"

namespace ranklink {

std::span<const Mechanism> mechanism_table() {
  static const Mechanism table[] = {kFdSocket, kFdPidfd, kStream};
  return table;
}

const Mechanism& find_mechanism(std::string_view name) {
  for (const Mechanism& mechanism : mechanism_table()) {
    if (mechanism.name == name) return mechanism;
  }
  Reader::fail("a mechanism that isn't in the table");
}

Verdict no_verdict(int rank, std::string cause, std::string remedy) {
  return {.tried = true, .rank = rank, .cause = std::move(cause), .remedy = std::move(remedy)};
}

Verdict no_verdict(int rank, const Error& error) {
  return no_verdict(rank, error.cause(), error.remedy());
}

Offer make_offer(Surroundings& around, Circle& circle, const Memory* memory, Deadline deadline) {
  Writer row;
  if (memory != nullptr) {
    around.device.handle(*memory).encode(row);
    row.put(static_cast<std::int32_t>(around.device.export_fd(*memory)));
    const int me = around.rank();
    write_pattern({around.client.seating().job, me, me, kPullAccess, 0}, 0, around.probe);
    row.put(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(around.probe.data())));
  }
  const Bytes all = circle.submit(around.client.step() + "/offer", row.take(), deadline);
  const auto ranks = static_cast<std::size_t>(around.size());
  Offer offer{.memory = memory,
              .handles = std::vector<Handle>(ranks),
              .fd_numbers = std::vector<std::int32_t>(ranks, -1),
              .probes = std::vector<std::uint64_t>(ranks)};
  Reader reader(all);
  const auto rows = split_rows(reader, static_cast<int>(circle.members.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].empty()) continue;
    const auto rank = static_cast<std::size_t>(circle.members[i]);
    Reader peer(rows[i]);
    offer.handles[rank] = Handle::decode(peer);
    offer.fd_numbers[rank] = peer.get<std::int32_t>();
    offer.probes[rank] = peer.get<std::uint64_t>();
    peer.end();
  }
  return offer;
}

}  // namespace ranklink
