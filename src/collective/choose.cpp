#include "collective/choose.h"

#include <fmt/format.h>

#include <vector>

#include "base/settings.h"

namespace ranklink {
namespace {

constexpr const Algorithm* kAlgorithms[] = {
    &kAllReduceFlat,   &kAllReduceTwoPhase,    &kAllReduceDirect,     &kAllGatherFlat,
    &kAllGatherDirect, &kReduceScatterFlat,    &kReduceScatterDirect, &kBroadcastFlat,
    &kBroadcastDirect, &kReduceFlat,           &kGatherFlat,          &kScatterFlat,
    &kAllToAllFlat,    &kAllToAllDirect,       &kAllToAllV,           &kExchangeGrants,
    &kBarrierFlat,     &kBarrierDissemination, &kAllGatherPull,       &kBroadcastPull,
    &kGatherPull,      &kScatterPull,          &kAllToAllPull,        &kExchangePull,
};

// Measured with RANKLINK_ALGORITHM; bench/README.md says what was learned.
constexpr Tuning kTable[] = {
    {Collective::all_reduce, true, kAnyRanks, 2048, &kAllReduceFlat},
    {Collective::all_reduce, true, kAnyRanks, kAnyBytes, &kAllReduceDirect},
    {Collective::all_gather, true, kAnyRanks, kAnyBytes, &kAllGatherDirect},
    {Collective::reduce_scatter, true, kAnyRanks, kAnyBytes, &kReduceScatterDirect},
    {Collective::broadcast, true, kAnyRanks, kAnyBytes, &kBroadcastDirect},
    {Collective::all_to_all, true, kAnyRanks, kAnyBytes, &kAllToAllDirect},
    {Collective::all_reduce, false, 2, 64 << 10, &kAllReduceFlat},
    {Collective::all_reduce, false, 16, 16 << 10, &kAllReduceFlat},
    {Collective::all_reduce, false, kAnyRanks, 4 << 10, &kAllReduceFlat},
    {Collective::all_reduce, false, kAnyRanks, kAnyBytes, &kAllReduceTwoPhase},
    {Collective::all_gather, false, kAnyRanks, 8 << 10, &kAllGatherFlat},
    {Collective::all_gather, false, 2, 16 << 20, &kAllGatherPull},
    {Collective::all_gather, false, kAnyRanks, kAnyBytes, &kAllGatherFlat},
    {Collective::reduce_scatter, false, kAnyRanks, kAnyBytes, &kReduceScatterFlat},
    {Collective::broadcast, false, kAnyRanks, 16 << 10, &kBroadcastFlat},
    {Collective::broadcast, false, 2, kAnyBytes, &kBroadcastPull},
    {Collective::broadcast, false, kAnyRanks, kAnyBytes, &kBroadcastFlat},
    {Collective::reduce, false, kAnyRanks, kAnyBytes, &kReduceFlat},
    {Collective::gather, false, kAnyRanks, 16 << 10, &kGatherFlat},
    {Collective::gather, false, 2, 4 << 20, &kGatherPull},
    {Collective::gather, false, kAnyRanks, 64 << 10, &kGatherFlat},
    {Collective::gather, false, 16, 4 << 20, &kGatherPull},
    {Collective::gather, false, kAnyRanks, kAnyBytes, &kGatherFlat},
    {Collective::scatter, false, kAnyRanks, 8 << 10, &kScatterFlat},
    {Collective::scatter, false, 2, kAnyBytes, &kScatterPull},
    {Collective::scatter, false, kAnyRanks, 128 << 10, &kScatterFlat},
    {Collective::scatter, false, 16, 32 << 20, &kScatterPull},
    {Collective::scatter, false, kAnyRanks, kAnyBytes, &kScatterFlat},
    {Collective::all_to_all, false, 2, 4 << 10, &kAllToAllFlat},
    {Collective::all_to_all, false, 2, kAnyBytes, &kAllToAllPull},
    {Collective::all_to_all, false, kAnyRanks, 64 << 10, &kAllToAllFlat},
    {Collective::all_to_all, false, 4, 32 << 20, &kAllToAllPull},
    {Collective::all_to_all, false, kAnyRanks, 128 << 10, &kAllToAllFlat},
    {Collective::all_to_all, false, 16, 32 << 20, &kAllToAllPull},
    {Collective::all_to_all, false, kAnyRanks, kAnyBytes, &kAllToAllFlat},
    {Collective::all_to_all_v, false, kAnyRanks, kAnyBytes, &kAllToAllV},
    {Collective::exchange, false, 16, kAnyBytes, &kExchangePull},
    {Collective::exchange, false, kAnyRanks, kAnyBytes, &kExchangeGrants},
    {Collective::barrier, false, 16, kAnyBytes, &kBarrierFlat},
    {Collective::barrier, false, kAnyRanks, kAnyBytes, &kBarrierDissemination},
};

const Algorithm* find_algorithm(std::string_view collective, std::string_view name) {
  for (const Algorithm* algorithm : kAlgorithms) {
    if (to_string(algorithm->collective) == collective && algorithm->name == name) return algorithm;
  }
  return nullptr;
}

std::string refusal(std::string_view part) {
  std::vector<std::string> known;
  for (const Algorithm* algorithm : kAlgorithms) {
    known.push_back(fmt::format("{}={}", to_string(algorithm->collective), algorithm->name));
  }
  const auto near = nearest(part, {known.begin(), known.end()});
  return fmt::format(
      "auto is needed, or COLLECTIVE=ALGORITHM as in all_reduce=two_phase{}",
      near ? fmt::format("; did you mean {}?", *near) : "; see `ranklink settings --tuning`");
}

// Calls `each` with every part, until it returns false.
template <typename Each>
void for_parts(std::string_view text, const Each& each) {
  while (true) {
    const auto comma = text.find(',');
    if (!each(text.substr(0, comma))) return;
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

const Algorithm* algorithm_of(std::string_view part) {
  const auto equals = part.find('=');
  if (equals == std::string_view::npos) return nullptr;
  return find_algorithm(part.substr(0, equals), part.substr(equals + 1));
}

}  // namespace

std::span<const Algorithm* const> algorithm_table() { return kAlgorithms; }
std::span<const Tuning> tuning_table() { return kTable; }

std::optional<std::string> refuse_algorithms(std::string_view text) {
  std::optional<std::string> why;
  if (text == "auto") return why;
  for_parts(text, [&](std::string_view part) {
    if (algorithm_of(part) == nullptr) why = refusal(part);
    return !why;
  });
  return why;
}

Forced Forced::parse(std::string_view text) {
  Forced forced;
  if (text == "auto") return forced;
  for_parts(text, [&](std::string_view part) {
    const Algorithm* algorithm = algorithm_of(part);
    if (algorithm == nullptr) {
      throw Error({.code = ErrorCode::setting_invalid,
                   .cause = fmt::format("RANKLINK_ALGORITHM={} can't be used", text),
                   .remedy = refusal(part)});
    }
    forced.by_[static_cast<std::size_t>(algorithm->collective)] = algorithm;
    return true;
  });
  return forced;
}

Choice::Choice(int ranks, bool pull, const Forced& forced) {
  for (const Tuning& row : kTable) {
    if (ranks > row.ranks || (row.algorithm->needs == Needs::pull && !pull)) continue;
    auto& rows = rows_[row.shared ? 1 : 0][static_cast<std::size_t>(row.collective)];
    if (!rows.empty() && rows.back().bytes == kAnyBytes) continue;
    const Algorithm* wanted = forced.find(row.collective);
    if (wanted != nullptr && fits(*wanted, row.shared)) {
      if (wanted->needs == Needs::pull && !pull && ranks > 1) {
        throw Error(
            {.code = ErrorCode::mechanism_unavailable,
             .cause = fmt::format("{}={} was asked for, and not all ranks can copy from each "
                                  "other's memory (process_vm_readv, process_vm_writev)",
                                  to_string(row.collective), wanted->name),
             .remedy = "put the ranks into one pid namespace, with the right to trace each "
                       "other (--cap-add SYS_PTRACE), or use another algorithm"});
      }
      rows.assign(1, {kAnyBytes, wanted});
    } else {
      rows.push_back({row.bytes, row.algorithm});
    }
  }
}

bool fits(const Algorithm& algorithm, bool shared) {
  return algorithm.needs != Needs::shared_buffer || shared;
}

void Choice::refuse(Collective collective) {
  throw Error({.code = ErrorCode::bad_argument,
               .cause = fmt::format("there is no algorithm for {}", to_string(collective)),
               .remedy = "use a collective that ranklink/group.hpp names"});
}

}  // namespace ranklink
