#include "group/shared_buffer.h"

#include <fmt/format.h>

#include <cstring>

#include "exchange/trial.h"

namespace ranklink {

SharedBuffer::SharedBuffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedBuffer::SharedBuffer(SharedBuffer&&) noexcept = default;
SharedBuffer& SharedBuffer::operator=(SharedBuffer&&) noexcept = default;
SharedBuffer::~SharedBuffer() = default;

std::span<std::byte> SharedBuffer::local() const { return {impl_->own->data(), impl_->size}; }

std::span<std::byte> SharedBuffer::peer(int rank) const {
  if (rank == impl_->rank) return local();
  if (rank < 0 || static_cast<std::size_t>(rank) >= impl_->peers.size()) {
    throw Error(
        {.code = ErrorCode::bad_argument,
         .cause = fmt::format("there is no rank {} in a group of {}", rank, impl_->peers.size()),
         .remedy = "use a rank from 0 to size - 1"});
  }
  const auto& memory = impl_->peers[static_cast<std::size_t>(rank)];
  if (!memory) return {};
  return {memory->data(), impl_->size};
}

namespace {

// All ranks find the same one to blame: the first that differs from rank 0.
void need_same_size(Surroundings& around, std::size_t size, Deadline deadline) {
  Writer row;
  row.put(static_cast<std::uint64_t>(size));
  const Bytes all = around.client.submit(around.client.step() + "/size", row.take(), deadline);
  Reader reader(all);
  const auto rows = split_rows(reader, around.size());
  const auto size_of = [&](int rank) {
    return Reader(rows[static_cast<std::size_t>(rank)]).get<std::uint64_t>();
  };
  for (int rank = 1; rank < around.size(); ++rank) {
    if (size_of(rank) == size_of(0)) continue;
    throw Error({.code = ErrorCode::bad_argument,
                 .rank = rank,
                 .cause = fmt::format("it asks for a shared buffer of {} bytes, rank 0 for {}",
                                      size_of(rank), size_of(0)),
                 .remedy = "give the same size on all ranks"});
  }
}

}  // namespace

std::unique_ptr<SharedBuffer::Impl> share_memory(Group::Impl& group, std::size_t size,
                                                 Deadline deadline) {
  if (size == 0) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = "a shared buffer of no bytes",
                 .remedy = "ask for at least one"});
  }
  Surroundings& around = *group.around;
  auto buffer = std::make_unique<SharedBuffer::Impl>();
  buffer->rank = around.rank();
  buffer->size = size;
  buffer->peers.resize(static_cast<std::size_t>(around.size()));
  const std::size_t bytes = std::max(size, trial_bytes(around.size()));
  buffer->own = group.device->allocate(fmt::format("ranklink-buffer-{}", around.rank()), bytes);
  need_same_size(around, size, deadline);
  const Offer offer = make_offer(around, *buffer->own, deadline);
  // Only what the group agreed on is used: no rank decides alone on something else.
  const Decision& decision = group.decision;
  for (const VerdictMatrix& matrix : decision.verdicts) {
    const Mechanism& mechanism = find_mechanism(matrix.mechanism());
    if (!mechanism.maps) continue;
    const auto uses = [&](int from, int to) {
      return decision.mechanism(from, to) == matrix.mechanism();
    };
    std::vector<int> peers;
    bool any = false;
    for (int a = 0; a < around.size(); ++a) {
      for (int b = 0; b < around.size(); ++b) {
        if (a == b || (!uses(a, b) && !uses(b, a))) continue;
        any = true;
        if (a == around.rank()) peers.push_back(b);
      }
    }
    if (!any) continue;
    std::map<int, Link> links;
    const VerdictRow row = try_mechanism(around, mechanism, offer, peers, links, deadline);
    for (const VerdictRow::Entry& entry : row.entries) {
      for (const auto& [verdict, from, to] :
           {std::tuple(&entry.to_peer, around.rank(), entry.peer),
            std::tuple(&entry.from_peer, entry.peer, around.rank())}) {
        if (verdict->yes || !uses(from, to)) continue;
        throw Error({.code = ErrorCode::mechanism_unavailable,
                     .rank = verdict->rank,
                     .peer = entry.peer,
                     .cause = fmt::format("{} worked at bring-up and fails for a shared buffer: {}",
                                          matrix.mechanism(), verdict->cause),
                     .remedy = verdict->remedy});
      }
      if (uses(around.rank(), entry.peer)) {
        buffer->peers[static_cast<std::size_t>(entry.peer)] =
            std::move(links.at(entry.peer).memory);
      }
    }
  }
  // The trial wrote patterns; when all have cleared theirs, nobody sees anything but zeros.
  std::memset(buffer->own->data(), 0, bytes);
  around.client.submit("make_shared_buffer/cleared", {}, deadline);
  return buffer;
}

}  // namespace ranklink
