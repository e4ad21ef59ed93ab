// Verdicts, plans, decisions and timelines, and the coordinator that gets rows of any kind.

#include "driver/driver.h"
#include "exchange/coordinator.h"
#include "group/timeline.h"

namespace ranklink {
namespace {

// A decision may be for thousands of ranks; those would only make the fuzzer slow.
bool is_small(ByteView bytes) {
  Reader reader(bytes);
  return reader.get<std::uint32_t>() <= 16;
}

Verdict yes() { return {.yes = true, .tried = true}; }
Verdict no(int rank) {
  return {.mechanism = "", .tried = true, .rank = rank, .cause = "EPERM", .remedy = "mend it"};
}

std::vector<Bytes> introductions(int size) {
  std::vector<Bytes> rows;
  for (int rank = 0; rank < size; ++rank) {
    rows.push_back(introduce(Facts{.hostname = "node"}, Settings(), {}).encode());
  }
  return rows;
}

// Both ranks of a group hand in the halves of the input, round after round.
void coordinate(ByteView input) {
  Coordinator coordinator;
  coordinator("inspect", introductions(2));
  while (!input.empty()) {
    Reader reader(input);
    const bool end = reader.get<std::uint8_t>() % 4 == 0;
    const ByteView a = reader.blob(4096);
    const ByteView b = reader.blob(4096);
    input = input.subspan(9 + a.size() + b.size());
    coordinator(end ? "agree" : "try/verdicts",
                {Bytes(a.begin(), a.end()), Bytes(b.begin(), b.end())});
  }
}

}  // namespace

void fuzz(ByteView input) {
  if (input.empty()) return;
  const ByteView rest = input.subspan(1);
  Reader reader(rest);
  switch (std::to_integer<int>(input[0]) % 6) {
    case 0:
      if (!is_small(rest)) return;
      take_message<Decision>(rest);
      for (const VerdictMatrix& matrix : Decision::decode(rest).verdicts) matrix.at(0, 0);
      break;
    case 1:
      take_message<VerdictRow>(rest);
      break;
    case 2: {
      const Plan plan = Plan::decode(reader, 5);
      Writer w;
      plan.encode(w);
      Reader again(w.bytes());
      require(Plan::decode(again, 5).decision == plan.decision);
      for (int rank = 0; rank < 5; ++rank)
        require(plan.decided || plan.pairs.peers_of(rank).size() < 5);
      break;
    }
    case 3:
      Timeline::decode(reader, 1);
      break;
    case 4:
      split_rows(reader, 3);
      break;
    case 5:
      coordinate(rest);
      break;
  }
}

std::vector<Bytes> seeds() {
  VerdictMatrix socket("fd+socket", 3);
  VerdictMatrix stream("stream", 3);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      socket.set(from, to, from == 1 ? no(1) : yes());
      stream.set(from, to, yes());
    }
  }
  const Decision decision = decide(3, {socket, stream}, "auto");
  const VerdictRow row{{{1, yes(), no(0)}, {2, no(2), yes()}}};
  Writer decided;
  Plan{true, {}, PairSet(5), decision.encode()}.encode(decided);
  Writer to_try;
  Plan{false, "stream", PairSet::all(5), {}}.encode(to_try);
  Timeline timeline;
  timeline.begin("join");
  timeline.begin("inspect");
  Writer dialogue;
  dialogue.put(std::uint8_t{1});
  dialogue.blob(VerdictRow{{{1, yes(), yes()}}}.encode());
  dialogue.blob(VerdictRow{{{0, yes(), no(1)}}}.encode());
  dialogue.put(std::uint8_t{1});
  dialogue.blob(VerdictRow{{{1, yes(), yes()}}}.encode());
  dialogue.blob(VerdictRow{{{0, yes(), yes()}}}.encode());
  dialogue.put(std::uint8_t{0});
  dialogue.blob(Bytes(32));
  dialogue.blob(Bytes(32));
  return {chosen(0, decision.encode()), chosen(1, row.encode()),
          chosen(2, decided.bytes()),   chosen(2, to_try.bytes()),
          chosen(3, timeline.encode()), chosen(4, join_rows({Bytes(3), Bytes(), Bytes(1)})),
          chosen(5, dialogue.bytes())};
}

}  // namespace ranklink
