// What a call must be, and how it is told from others.

#include <fmt/format.h>

#include "group/group_impl.h"
#include "group/shared_buffer.h"

namespace ranklink {
namespace {

// So that bytes of all ranks' elements can be counted.
constexpr std::size_t kMostElements = std::size_t{1} << 48;

[[noreturn]] void refuse(const Call& call, std::string cause, std::string remedy) {
  throw Error({.code = ErrorCode::bad_argument,
               .step = std::string(to_string(call.collective)),
               .cause = std::move(cause),
               .remedy = std::move(remedy)});
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

void check_rank_number(const Call& call, const char* what, int rank, int size) {
  if (rank >= 0 && rank < size) return;
  refuse(call, fmt::format("{} is rank {} in a group of {}", what, rank, size),
         "use a rank from 0 to size - 1");
}

// What a rank sends to itself it must also receive.
void check_transfers(const Call& call, int rank, int size) {
  if (call.count > 0 && call.transfers == nullptr) refuse(call, "no transfers", "give an array");
  const std::span<const Transfer> transfers(call.transfers, call.count);
  std::vector<std::size_t> out;
  std::vector<std::size_t> in;
  for (const Transfer& transfer : transfers) {
    check_rank_number(call, "the peer", transfer.peer, size);
    if (transfer.bytes > 0 && transfer.data == nullptr) {
      refuse(call, fmt::format("no data for a message of {} bytes", transfer.bytes),
             "give a pointer to the data");
    }
    if (transfer.peer != rank) continue;
    (transfer.kind == Transfer::Kind::send ? out : in).push_back(transfer.bytes);
  }
  if (out == in) return;
  refuse(call, "what this rank sends to itself is not what it receives from itself",
         "put both into one exchange, in one order, with one size");
}

void check_counts(const Call& call, int rank, int size) {
  if (call.send_counts == nullptr || call.send_offsets == nullptr || call.recv_counts == nullptr ||
      call.recv_offsets == nullptr) {
    refuse(call, "no counts or no offsets", "give one of each for each rank, in both directions");
  }
  bool gives = false;
  bool takes = false;
  for (int peer = 0; peer < size; ++peer) {
    for (const std::size_t number : {call.send_counts[peer], call.send_offsets[peer],
                                     call.recv_counts[peer], call.recv_offsets[peer]}) {
      if (number >= kMostElements) {
        refuse(call, fmt::format("{} elements are more than memory holds", number),
               "give counts and offsets in elements");
      }
    }
    gives = gives || call.send_counts[peer] > 0;
    takes = takes || call.recv_counts[peer] > 0;
  }
  if ((gives && call.input == nullptr) || (takes && call.output == nullptr)) {
    refuse(call, "no memory for what is sent or received", "give pointers to both");
  }
  if (call.send_counts[rank] != call.recv_counts[rank]) {
    refuse(call, "what this rank sends to itself is not what it receives from itself",
           "give the same count for this rank in both directions");
  }
}

// The bytes of a SharedBuffer that a call touches, in each rank's memory.
std::size_t shared_bytes(const Call& call, int size) {
  const auto blocks =
      call.collective == Collective::all_reduce || call.collective == Collective::broadcast
          ? 1
          : static_cast<std::size_t>(size);
  return call.count * size_of(call.type) * blocks;
}

void check_shared(const Call& call, int size) {
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::all_to_all:
      break;
    default:
      refuse(call, "it has no form for a shared buffer", "pass the buffer's local memory");
  }
  const std::size_t have = call.shared->local().size();
  if (call.shared_offset > have || shared_bytes(call, size) > have - call.shared_offset) {
    refuse(call,
           fmt::format("{} bytes from offset {} don't fit a shared buffer of {}",
                       shared_bytes(call, size), call.shared_offset, have),
           "make a larger buffer");
  }
}

}  // namespace

std::size_t bytes_of_message(std::size_t count, DataType type) {
  if (count < kMostElements) return count * size_of(type);
  refuse({.collective = Collective::exchange},
         fmt::format("{} elements are more than memory holds", count),
         "give the number of elements");
}

void check_call(const Call& call, int rank, int size) {
  if (static_cast<std::size_t>(call.collective) >= static_cast<std::size_t>(Collective::split) ||
      static_cast<std::size_t>(call.type) > static_cast<std::size_t>(DataType::i64) ||
      static_cast<std::size_t>(call.op) > static_cast<std::size_t>(ReduceOp::avg)) {
    refuse(call, "a collective, type or operation of an unknown number",
           "use the names of ranklink/collective.hpp");
  }
  if (call.collective == Collective::barrier) return;
  if (call.collective == Collective::exchange) return check_transfers(call, rank, size);
  if (call.count >= kMostElements) {
    refuse(call, fmt::format("{} elements are more than memory holds", call.count),
           "give the number of elements");
  }
  if (has_root(call.collective)) check_rank_number(call, "the root", call.root, size);
  if (call.shared != nullptr) return check_shared(call, size);
  if (call.collective == Collective::all_to_all_v) return check_counts(call, rank, size);
  if (call.count == 0) return;
  const bool at_root = rank == call.root;
  const bool gives = call.collective != Collective::scatter || at_root;
  const bool takes =
      (call.collective != Collective::reduce && call.collective != Collective::gather) || at_root;
  if ((gives && call.input == nullptr) || (takes && call.output == nullptr)) {
    refuse(call, fmt::format("no memory for {} elements", call.count),
           "give pointers to input and output");
  }
}

std::uint32_t tag_of(const Call& call) {
  const auto collective = static_cast<std::uint32_t>(call.collective);
  std::uint32_t tag = collective << 28;
  if (call.collective == Collective::barrier || call.collective == Collective::exchange) return tag;
  tag |= static_cast<std::uint32_t>(call.type) << 24;
  if (reduces(call.collective)) tag |= static_cast<std::uint32_t>(call.op) << 20;
  if (has_root(call.collective)) tag |= (static_cast<std::uint32_t>(call.root) & 0xfff) << 8;
  // Counts that differ mostly show in the sizes of messages; where these are pieces, here.
  return tag | static_cast<std::uint32_t>(call.count * 0x9e37'79b9'7f4a'7c15u >> 56);
}

std::string describe_tag(std::uint32_t tag) {
  const auto collective = static_cast<Collective>(tag >> 28);
  if (collective >= Collective::split) return "a call of another version";
  std::string text(to_string(collective));
  if (collective == Collective::barrier || collective == Collective::exchange) return text;
  text += fmt::format(" {}", to_string(static_cast<DataType>(tag >> 24 & 0x7)));
  if (reduces(collective)) {
    const std::uint32_t op = tag >> 20 & 0xf;
    if (op <= static_cast<std::uint32_t>(ReduceOp::avg)) {
      text += fmt::format(" {}", to_string(static_cast<ReduceOp>(op)));
    }
  }
  if (has_root(collective)) text += fmt::format(" root {}", tag >> 8 & 0xfff);
  return text;
}

}  // namespace ranklink
