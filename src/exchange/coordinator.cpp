#include "exchange/coordinator.h"

#include <fmt/format.h>

#include "exchange/mechanism.h"

namespace ranklink {

void Plan::encode(Writer& to) const {
  to.put(decided);
  if (decided) {
    to.blob(decision);
  } else {
    to.text(mechanism);
    pairs.encode(to);
  }
}

Plan Plan::decode(Reader& from, int size) {
  Plan plan;
  plan.decided = from.get<std::uint8_t>() != 0;
  if (plan.decided) {
    const ByteView bytes = from.blob(64u << 20);
    plan.decision.assign(bytes.begin(), bytes.end());
  } else {
    plan.mechanism = from.text(64);
    plan.pairs = PairSet::decode(from, size);
  }
  return plan;
}

Bytes VerdictRow::encode() const {
  Writer w;
  w.put(static_cast<std::uint32_t>(entries.size()));
  for (const Entry& entry : entries) {
    w.put(static_cast<std::int32_t>(entry.peer));
    w.put(entry.linked);
    for (const Verdict* v : {&entry.to_peer, &entry.from_peer}) {
      w.put(v->yes);
      if (!v->yes) ranklink::encode(*v, w);
    }
  }
  return w.take();
}

VerdictRow VerdictRow::decode(ByteView bytes) {
  Reader r(bytes);
  VerdictRow row;
  const std::size_t count = r.count(7);
  for (std::size_t i = 0; i < count; ++i) {
    Entry entry;
    entry.peer = r.get<std::int32_t>();
    entry.linked = r.get<std::uint8_t>() != 0;
    for (Verdict* v : {&entry.to_peer, &entry.from_peer}) {
      if (r.get<std::uint8_t>() != 0) {
        v->yes = v->tried = true;
      } else {
        *v = decode_verdict(r);
      }
    }
    row.entries.push_back(std::move(entry));
  }
  r.end();
  return row;
}

Bytes join_rows(const std::vector<Bytes>& rows) {
  Writer w;
  for (const Bytes& row : rows) w.blob(row);
  return w.take();
}

std::vector<Bytes> split_rows(Reader& from, int size) {
  std::vector<Bytes> rows;
  for (int i = 0; i < size; ++i) {
    const ByteView row = from.blob(64u << 20);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

Bytes Coordinator::operator()(std::string_view round, const std::vector<Bytes>& rows) {
  if (round == "inspect") return inspect(rows);
  if (round == "try/verdicts") return take_verdicts(rows);
  if (round == "agree") return agree(rows);
  return join_rows(rows);
}

Bytes Coordinator::inspect(const std::vector<Bytes>& rows) {
  std::vector<Introduction> ranks;
  for (const Bytes& row : rows) ranks.push_back(Introduction::decode(row));
  check_agreement(ranks);
  size_ = static_cast<int>(ranks.size());
  setting_ = ranks.front().setting("RANKLINK_MECHANISM");
  try_all_ = ranks.front().setting("RANKLINK_TRIALS") == "all";
  ladder_ = ladder_for(setting_);
  rung_ = 0;
  verdicts_.clear();
  Writer result;
  result.raw(join_rows(rows));
  next_plan().encode(result);
  return result.take();
}

Plan Coordinator::next_plan() {
  for (; rung_ < ladder_.size(); ++rung_) {
    pairs_ = pairs_to_try(size_, verdicts_, try_all_);
    if (pairs_.empty()) break;
    return {.decided = false, .mechanism = ladder_[rung_], .pairs = pairs_, .decision = {}};
  }
  const Decision decision = decide(size_, verdicts_, setting_);
  digest_ = decision.digest();
  return {.decided = true, .mechanism = {}, .pairs = PairSet(size_), .decision = decision.encode()};
}

Bytes Coordinator::take_verdicts(const std::vector<Bytes>& rows) {
  if (rung_ >= ladder_.size() || rows.size() != static_cast<std::size_t>(size_)) {
    Reader::fail("verdicts that nobody asked for");
  }
  VerdictMatrix matrix(ladder_[rung_], size_);
  std::vector<VerdictRow> decoded;
  for (const Bytes& row : rows) decoded.push_back(VerdictRow::decode(row));
  // Both ends of a pair have seen something. What the accessing rank saw counts first, then what
  // the other did; but a rank that didn't even get its end of a stream knows better than one whose
  // stream was silent.
  const bool streams = !find_mechanism(ladder_[rung_]).maps;
  enum class View { accessing, other, without_stream };
  for (const View view : {View::accessing, View::other, View::without_stream}) {
    for (int rank = 0; rank < size_; ++rank) {
      for (const VerdictRow::Entry& entry : decoded[static_cast<std::size_t>(rank)].entries) {
        const int peer = entry.peer;
        if (peer < 0 || peer >= size_ || peer == rank) {
          Reader::fail("a verdict on a rank that isn't there");
        }
        if (view == View::accessing) matrix.set(rank, peer, entry.to_peer);
        if (view == View::other && matrix.yes(peer, rank)) matrix.set(peer, rank, entry.from_peer);
        if (view == View::without_stream && streams && !entry.linked) {
          matrix.set(rank, peer, entry.to_peer);
          matrix.set(peer, rank, entry.from_peer);
        }
      }
    }
  }
  verdicts_.push_back(std::move(matrix));
  ++rung_;
  Writer result;
  next_plan().encode(result);
  return result.take();
}

Bytes Coordinator::agree(const std::vector<Bytes>& rows) {
  Writer commit;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    Reader reader(rows[rank]);
    const ByteView bytes = reader.raw(Digest{}.size());
    Digest digest;
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    if (!equal(digest, digest_)) {
      throw Error(
          {.code = ErrorCode::digest_mismatch,
           .rank = static_cast<int>(rank),
           .step = "agree",
           .cause = fmt::format("it acknowledged decision {}.. where {}.. was decided",
                                to_hex(digest).substr(0, 16), to_hex(digest_).substr(0, 16)),
           .remedy = "run the same build of ranklink on all ranks"});
    }
  }
  commit.put(++epoch_);
  commit.raw(join_rows(rows));
  return commit.take();
}

}  // namespace ranklink
