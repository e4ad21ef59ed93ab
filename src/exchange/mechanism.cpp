#include "exchange/mechanism.h"

#include <fmt/format.h>

#include "exchange/coordinator.h"

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

Offer make_offer(Surroundings& around, const Memory& memory, Deadline deadline) {
  Writer row;
  around.device.handle(memory).encode(row);
  row.put(static_cast<std::int32_t>(around.device.export_fd(memory)));
  const Bytes all = around.client.submit(around.client.step() + "/offer", row.take(), deadline);
  Offer offer{.memory = &memory, .handles = {}, .fd_numbers = {}};
  Reader reader(all);
  for (const Bytes& bytes : split_rows(reader, around.size())) {
    Reader peer(bytes);
    offer.handles.push_back(Handle::decode(peer));
    offer.fd_numbers.push_back(peer.get<std::int32_t>());
    peer.end();
    // What is later read and written in it is found by the size that all have computed.
    if (offer.handles.back().size != memory.size()) Reader::fail("memory of an unexpected size");
  }
  return offer;
}

}  // namespace ranklink
