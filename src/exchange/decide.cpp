#include "exchange/decide.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "exchange/mechanism.h"

namespace ranklink {
namespace {

constexpr std::size_t kMaxBook = 60'000;
constexpr std::size_t kMaxVerdictText = 2048;
constexpr std::size_t kMaxMechanisms = 16;

// A matrix that holds one value everywhere travels as that value.
template <typename T>
void put_uniform_or_all(Writer& to, const std::vector<T>& values) {
  const bool uniform =
      std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
  to.put(uniform);
  const std::size_t count = uniform ? std::min<std::size_t>(1, values.size()) : values.size();
  for (std::size_t i = 0; i < count; ++i) to.put(values[i]);
}

template <typename T>
std::vector<T> get_uniform_or_all(Reader& from, std::size_t count) {
  const bool uniform = from.get<std::uint8_t>() != 0;
  if (uniform && count != 0) return std::vector<T>(count, from.get<T>());
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(from.get<T>());
  return values;
}

Error failure_of(const std::vector<VerdictMatrix>& verdicts, int from, int to,
                 const std::string& setting) {
  std::vector<std::string> causes;
  Verdict chief;
  for (const VerdictMatrix& matrix : verdicts) {
    const Verdict& v = matrix.at(from, to);
    if (v.cause.empty()) continue;
    if (causes.empty()) chief = v;
    causes.push_back(fmt::format("{}: {}{}", matrix.mechanism(),
                                 v.rank >= 0 ? fmt::format("at rank {}: ", v.rank) : "", v.cause));
  }
  const bool explicit_choice = setting != "auto" && setting != "none";
  return Error(
      {.code = explicit_choice ? ErrorCode::mechanism_unavailable : ErrorCode::no_route,
       .rank = chief.rank >= 0 ? chief.rank : from,
       .peer = chief.rank == to ? from : to,
       .step = "agree",
       .cause = fmt::format(
           "rank {} can't reach the memory of rank {}{}: {}", from, to,
           explicit_choice ? fmt::format(" by {}, which was asked for", setting) : "",
           causes.empty() ? "nothing was tried" : fmt::format("{}", fmt::join(causes, "; "))),
       .remedy = chief.remedy.empty() ? "set RANKLINK_MECHANISM=auto" : chief.remedy});
}

}  // namespace

void encode(const Verdict& v, Writer& to) {
  to.text(v.mechanism);
  to.put(v.yes);
  to.put(v.tried);
  to.put(static_cast<std::int32_t>(v.rank));
  to.text(v.cause.substr(0, kMaxVerdictText));
  to.text(v.remedy.substr(0, kMaxVerdictText));
}

Verdict decode_verdict(Reader& from) {
  Verdict v;
  v.mechanism = from.text(64);
  v.yes = from.get<std::uint8_t>() != 0;
  v.tried = from.get<std::uint8_t>() != 0;
  v.rank = from.get<std::int32_t>();
  v.cause = from.text(kMaxVerdictText);
  v.remedy = from.text(kMaxVerdictText);
  return v;
}

VerdictMatrix::VerdictMatrix(std::string mechanism, int size)
    : mechanism_(std::move(mechanism)),
      size_(size),
      ids_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size), kUntried),
      book_{Verdict{.mechanism = mechanism_},
            Verdict{.mechanism = mechanism_, .yes = true, .tried = true}} {}

std::uint16_t VerdictMatrix::id_of(const Verdict& verdict) {
  if (verdict.yes) return kYes;
  Writer key;
  ranklink::encode(verdict, key);
  const auto [entry, added] =
      known_.try_emplace({reinterpret_cast<const char*>(key.bytes().data()), key.bytes().size()},
                         static_cast<std::uint16_t>(book_.size()));
  if (added) {
    if (book_.size() >= kMaxBook) {
      known_.erase(entry);
      return kUntried;  // more reasons than anybody reads
    }
    book_.push_back(verdict);
  }
  return entry->second;
}

void VerdictMatrix::set(int from, int to, const Verdict& verdict) {
  Verdict mine = verdict;
  mine.mechanism = mechanism_;
  ids_[index(from, to)] = id_of(mine);
}

void VerdictMatrix::encode(Writer& to) const {
  to.text(mechanism_);
  to.put(static_cast<std::uint32_t>(book_.size()));
  for (std::size_t id = 2; id < book_.size(); ++id) ranklink::encode(book_[id], to);
  put_uniform_or_all(to, ids_);
}

VerdictMatrix VerdictMatrix::decode(Reader& from, int size) {
  VerdictMatrix matrix(from.text(64), size);
  const auto count = from.get<std::uint32_t>();
  if (count < 2 || count > kMaxBook) Reader::fail("a verdict book of an absurd size");
  for (std::size_t id = 2; id < count; ++id) matrix.book_.push_back(decode_verdict(from));
  matrix.ids_ = get_uniform_or_all<std::uint16_t>(from, matrix.ids_.size());
  for (const std::uint16_t id : matrix.ids_) {
    if (id >= matrix.book_.size()) Reader::fail("a verdict that isn't in the book");
  }
  return matrix;
}

std::vector<std::string> ladder_for(const std::string& setting) {
  if (setting == "none") return {"stream"};
  if (setting == "auto") return {"fd+socket", "fd+pidfd", "stream"};
  return {setting};
}

PairSet::PairSet(int size)
    : size_(size), bits_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {}

PairSet PairSet::all(int size) {
  PairSet set(size);
  set.bits_.assign(set.bits_.size(), true);
  for (int rank = 0; rank < size; ++rank) set.bits_[set.index(rank, rank)] = false;
  return set;
}

std::size_t PairSet::index(int a, int b) const {
  return static_cast<std::size_t>(std::min(a, b)) * static_cast<std::size_t>(size_) +
         static_cast<std::size_t>(std::max(a, b));
}

bool PairSet::empty() const {
  for (int a = 0; a < size_; ++a) {
    for (int b = a + 1; b < size_; ++b) {
      if (has(a, b)) return false;
    }
  }
  return true;
}

std::vector<int> PairSet::peers_of(int rank) const {
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank && has(rank, peer)) peers.push_back(peer);
  }
  return peers;
}

void PairSet::encode(Writer& to) const {
  std::vector<std::uint8_t> bits;
  for (int a = 0; a < size_; ++a) {
    for (int b = a + 1; b < size_; ++b) bits.push_back(has(a, b) ? 1 : 0);
  }
  put_uniform_or_all(to, bits);
}

PairSet PairSet::decode(Reader& from, int size) {
  PairSet set(size);
  const auto n = static_cast<std::size_t>(size);
  const auto bits = get_uniform_or_all<std::uint8_t>(from, n * (n - 1) / 2);
  auto bit = bits.begin();
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      if (*bit++ != 0) set.add(a, b);
    }
  }
  return set;
}

PairSet pairs_to_try(int size, const std::vector<VerdictMatrix>& so_far, bool try_all) {
  if (try_all) return PairSet::all(size);
  const auto joined = [&](int from, int to) {
    return std::any_of(so_far.begin(), so_far.end(),
                       [&](const VerdictMatrix& m) { return m.yes(from, to); });
  };
  PairSet set(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      if (!joined(a, b) || !joined(b, a)) set.add(a, b);
    }
  }
  return set;
}

// Both ranks of a pair read each other's memory, or neither does: messages need both directions.
Decision decide(int size, const std::vector<VerdictMatrix>& verdicts, const std::string& setting) {
  Decision decision{.size = size, .verdicts = verdicts, .routes = {}};
  const auto best = [&](int from, int to, bool maps) {
    return std::find_if(verdicts.begin(), verdicts.end(), [&](const VerdictMatrix& m) {
      return find_mechanism(m.mechanism()).maps == maps && m.yes(from, to);
    });
  };
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to) {
        decision.routes.push_back(Decision::kSelf);
        continue;
      }
      const bool maps =
          best(from, to, true) != verdicts.end() && best(to, from, true) != verdicts.end();
      const auto found = best(from, to, maps);
      if (found == verdicts.end()) {
        // What failed may be the other direction.
        const bool this_way = best(from, to, true) == verdicts.end();
        throw failure_of(verdicts, this_way ? from : to, this_way ? to : from, setting);
      }
      decision.routes.push_back(static_cast<std::uint8_t>(found - verdicts.begin()));
    }
  }
  return decision;
}

Bytes Decision::encode() const {
  Writer w;
  w.put(static_cast<std::uint32_t>(size));
  w.put(static_cast<std::uint8_t>(verdicts.size()));
  for (const VerdictMatrix& matrix : verdicts) matrix.encode(w);
  std::vector<std::uint8_t> others;  // the diagonal is known
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from != to) others.push_back(route(from, to));
    }
  }
  put_uniform_or_all(w, others);
  return w.take();
}

Decision Decision::decode(ByteView bytes) {
  Reader r(bytes);
  const auto size = r.get<std::uint32_t>();
  if (size < 1 || size > 4096) Reader::fail("a decision for an absurd number of ranks");
  Decision d;
  d.size = static_cast<int>(size);
  const auto mechanisms = r.get<std::uint8_t>();
  if (mechanisms > kMaxMechanisms) Reader::fail("too many mechanisms");
  for (int i = 0; i < mechanisms; ++i) d.verdicts.push_back(VerdictMatrix::decode(r, d.size));
  const auto others = get_uniform_or_all<std::uint8_t>(r, std::size_t{size} * (size - 1));
  r.end();
  auto other = others.begin();
  for (int from = 0; from < d.size; ++from) {
    for (int to = 0; to < d.size; ++to) {
      d.routes.push_back(from == to ? kSelf : *other++);
      if (from != to && d.routes.back() >= d.verdicts.size()) Reader::fail("a route to nowhere");
    }
  }
  return d;
}

}  // namespace ranklink
