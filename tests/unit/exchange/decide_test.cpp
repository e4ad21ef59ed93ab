#include "exchange/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "../rendezvous/refusals.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;

Verdict yes() { return {.yes = true, .tried = true}; }
Verdict no(int rank, const std::string& cause) {
  return {.mechanism = "",
          .yes = false,
          .tried = true,
          .rank = rank,
          .cause = cause,
          .remedy = "mend " + cause};
}

// A matrix with one verdict for every ordered pair.
VerdictMatrix all_of(const std::string& mechanism, int size, const Verdict& verdict) {
  VerdictMatrix matrix(mechanism, size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from != to) matrix.set(from, to, verdict);
    }
  }
  return matrix;
}

std::string route(const Decision& decision, int from, int to) {
  const std::uint8_t index = decision.route(from, to);
  return index == Decision::kSelf ? "self" : decision.verdicts.at(index).mechanism();
}

TEST(Ladder, HoldsWhatTheSettingAllows) {
  EXPECT_EQ(ladder_for("auto"), (Names{"fd+socket", "fd+pidfd", "stream"}));
  EXPECT_EQ(ladder_for("none"), Names{"stream"});
  EXPECT_EQ(ladder_for("fd+pidfd"), Names{"fd+pidfd"});
}

TEST(Decide, TakesTheFastestThatWorked) {
  const Decision decision =
      decide(3, {all_of("fd+socket", 3, yes()), all_of("fd+pidfd", 3, yes())}, "auto");
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      EXPECT_EQ(route(decision, from, to), from == to ? "self" : "fd+socket");
    }
  }
}

// Messages need both directions: where memory can be read in one only, both use a stream.
TEST(Decide, MapsAPairInBothDirectionsOrNeither) {
  VerdictMatrix socket = all_of("fd+socket", 3, yes());
  socket.set(1, 0, no(1, "the kernel dropped it"));
  const Decision decision = decide(3, {socket, all_of("stream", 3, yes())}, "auto");
  EXPECT_EQ(route(decision, 0, 1), "stream");
  EXPECT_EQ(route(decision, 1, 0), "stream");
  for (const auto& [a, b] : {std::pair(0, 2), std::pair(1, 2)}) {
    EXPECT_EQ(route(decision, a, b), "fd+socket");
    EXPECT_EQ(route(decision, b, a), "fd+socket");
  }
}

// Each direction may be mapped in its own way.
TEST(Decide, TakesTheFastestOfEachDirection) {
  VerdictMatrix socket = all_of("fd+socket", 2, yes());
  socket.set(1, 0, no(1, "no socket"));
  const Decision decision =
      decide(2, {socket, all_of("fd+pidfd", 2, yes()), all_of("stream", 2, yes())}, "auto");
  EXPECT_EQ(route(decision, 0, 1), "fd+socket");
  EXPECT_EQ(route(decision, 1, 0), "fd+pidfd");
}

// A stream that works one way only doesn't help.
TEST(Decide, FailsWhereOnlyOneDirectionIsLeft) {
  VerdictMatrix socket = all_of("fd+socket", 2, yes());
  socket.set(1, 0, no(1, "the kernel dropped it"));
  VerdictMatrix stream = all_of("stream", 2, yes());
  stream.set(0, 1, no(0, "connect: ECONNREFUSED"));
  EXPECT_THAT(expect_error(ErrorCode::no_route,
                           [&] {
                             decide(2, {socket, stream}, "auto");
                           }),
              HasSubstr("the kernel dropped it"));
}

TEST(Decide, GivesOneBadRankAStreamAndTheOthersMemory) {
  VerdictMatrix socket = all_of("fd+socket", 4, yes());
  VerdictMatrix pidfd("fd+pidfd", 4);
  VerdictMatrix stream("stream", 4);
  for (const int other : {0, 1, 3}) {
    socket.set(2, other, no(2, "no socket"));
    socket.set(other, 2, no(2, "no socket"));
    pidfd.set(2, other, no(2, "EPERM"));
    pidfd.set(other, 2, no(other, "EPERM"));
    stream.set(2, other, yes());
    stream.set(other, 2, yes());
  }
  const Decision decision = decide(4, {socket, pidfd, stream}, "auto");
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      EXPECT_EQ(route(decision, from, to), from == 2 || to == 2 ? "stream" : "fd+socket");
    }
  }
}

TEST(Decide, MixesMechanismsBetweenPairs) {
  const auto set = [](VerdictMatrix& matrix, int a, int b, const Verdict& verdict) {
    matrix.set(a, b, verdict);
    matrix.set(b, a, verdict);
  };
  VerdictMatrix socket = all_of("fd+socket", 3, no(0, "no socket"));
  set(socket, 0, 1, yes());
  VerdictMatrix pidfd = all_of("fd+pidfd", 3, no(0, "EPERM"));
  set(pidfd, 0, 1, yes());
  set(pidfd, 1, 2, yes());
  const Decision decision = decide(3, {socket, pidfd, all_of("stream", 3, yes())}, "auto");
  EXPECT_EQ(route(decision, 0, 1), "fd+socket");
  EXPECT_EQ(route(decision, 2, 1), "fd+pidfd");
  EXPECT_EQ(route(decision, 2, 0), "stream");
}

TEST(Decide, SaysWhyNothingWorks) {
  VerdictMatrix socket = all_of("fd+socket", 3, yes());
  socket.set(2, 1, no(1, "the kernel dropped it"));
  VerdictMatrix stream = all_of("stream", 3, yes());
  stream.set(2, 1, no(2, "connect: ECONNREFUSED"));
  try {
    decide(3, {socket, stream}, "auto");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_route);
    EXPECT_EQ(error.step(), "agree");
    EXPECT_EQ(error.rank(), 1);  // where the first mechanism failed
    EXPECT_EQ(error.peer(), 2);
    EXPECT_EQ(error.cause(),
              "rank 2 can't reach the memory of rank 1: fd+socket: at rank 1: the kernel dropped "
              "it; stream: at rank 2: connect: ECONNREFUSED");
    EXPECT_EQ(error.remedy(), "mend the kernel dropped it");
  }
}

TEST(Decide, FailsWhereAllAreBad) {
  EXPECT_THAT(expect_error(ErrorCode::no_route,
                           [&] { decide(3, {all_of("stream", 3, no(0, "silence"))}, "auto"); }),
              HasSubstr("rank 0 can't reach the memory of rank 1"));
  EXPECT_THAT(expect_error(ErrorCode::no_route, [&] { decide(2, {}, "auto"); }),
              HasSubstr("nothing was tried"));
  EXPECT_THAT(
      expect_error(ErrorCode::no_route, [&] { decide(2, {VerdictMatrix("stream", 2)}, "none"); }),
      HasSubstr("nothing was tried"));
}

// A setting is obeyed, or the job fails saying why it can't be.
TEST(Decide, FailsWhereTheMechanismThatWasAskedForFails) {
  VerdictMatrix pidfd = all_of("fd+pidfd", 3, yes());
  pidfd.set(1, 2, no(1, "EPERM (Operation not permitted)"));
  try {
    decide(3, {pidfd}, "fd+pidfd");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mechanism_unavailable);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.peer(), 2);
    EXPECT_THAT(error.cause(), HasSubstr("by fd+pidfd, which was asked for"));
    EXPECT_THAT(error.cause(), HasSubstr("EPERM"));
  }
}

// Where the other direction would do, the reason is that of the one that fails.
TEST(Decide, NamesTheDirectionThatFails) {
  VerdictMatrix pidfd = all_of("fd+pidfd", 2, yes());
  pidfd.set(1, 0, no(1, "EPERM (Operation not permitted)"));
  EXPECT_THAT(
      expect_error(ErrorCode::mechanism_unavailable, [&] { decide(2, {pidfd}, "fd+pidfd"); }),
      HasSubstr("rank 1 can't reach the memory of rank 0 by fd+pidfd, which was asked for: "
                "fd+pidfd: at rank 1: EPERM"));
}

TEST(Decide, TakesStreamsOnlyWhenNoMemoryMayBeShared) {
  const Decision decision = decide(2, {all_of("stream", 2, yes())}, "none");
  EXPECT_EQ(route(decision, 0, 1), "stream");
  EXPECT_EQ(route(decision, 1, 0), "stream");
}

TEST(Decide, KnowsAGroupOfOne) {
  const Decision decision = decide(1, {}, "auto");
  EXPECT_EQ(route(decision, 0, 0), "self");
  EXPECT_EQ(Decision::decode(decision.encode()).digest(), decision.digest());
}

Decision mixed_decision() {
  VerdictMatrix socket = all_of("fd+socket", 3, yes());
  socket.set(0, 2, no(0, "one"));
  socket.set(1, 2, no(2, "two"));
  return decide(3, {socket, all_of("stream", 3, yes())}, "auto");
}

TEST(Decision, ComesBackFromItsBytes) {
  const Decision in = mixed_decision();
  const Decision out = Decision::decode(in.encode());
  EXPECT_EQ(out.size, 3);
  EXPECT_EQ(out.routes, in.routes);
  ASSERT_EQ(out.verdicts.size(), 2u);
  EXPECT_EQ(out.verdicts[0].mechanism(), "fd+socket");
  EXPECT_EQ(out.verdicts[0].at(0, 2).cause, "one");
  EXPECT_EQ(out.verdicts[0].at(1, 2).cause, "two");
  EXPECT_EQ(out.verdicts[0].at(1, 2).rank, 2);
  EXPECT_EQ(out.verdicts[0].at(1, 2).remedy, "mend two");
  EXPECT_EQ(out.verdicts[0].at(1, 2).mechanism, "fd+socket");
  EXPECT_TRUE(out.verdicts[0].yes(2, 0));
  EXPECT_TRUE(out.verdicts[1].yes(2, 0));
}

TEST(Decision, KeepsItsDigest) {
  const Decision decision = mixed_decision();
  EXPECT_EQ(Decision::decode(decision.encode()).digest(), decision.digest());
  EXPECT_EQ(mixed_decision().digest(), decision.digest());
}

TEST(Decision, ChangesItsDigestWithWhateverChanges) {
  const Digest digest = mixed_decision().digest();
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      Decision other = mixed_decision();
      auto& route = other.routes[static_cast<std::size_t>(from * 3 + to)];
      route = route == 0 ? 1 : 0;
      EXPECT_NE(other.digest(), digest);
      for (VerdictMatrix& matrix : other.verdicts) {
        Decision changed = mixed_decision();
        const auto index = static_cast<std::size_t>(&matrix - other.verdicts.data());
        changed.verdicts[index].set(from, to, no(from, "changed"));
        EXPECT_NE(changed.digest(), digest);
      }
    }
  }
  Decision renamed = mixed_decision();
  renamed.verdicts[0] = all_of("fd+pidfd", 3, yes());
  EXPECT_NE(renamed.digest(), digest);
}

// Every byte of what is agreed on counts.
TEST(Decision, ChangesItsDigestWithEveryByte) {
  const Bytes bytes = mixed_decision().encode();
  const Digest digest = mixed_decision().digest();
  std::size_t taken = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    Bytes other = bytes;
    other[at] ^= std::byte{1};
    try {
      const Decision decoded = Decision::decode(other);
      if (decoded.encode() == other) {
        EXPECT_NE(decoded.digest(), digest) << at;
        ++taken;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::protocol_violation);
    }
  }
  EXPECT_GT(taken, 10u);
}

TEST(Decision, IsTakenWholeOrNotAtAll) {
  expect_whole_only(mixed_decision().encode(), Decision::decode);
}

TEST(Decision, RefusesRoutesToNowhere) {
  Decision decision = mixed_decision();
  decision.routes[1] = 2;
  expect_error(ErrorCode::protocol_violation, [&] { Decision::decode(decision.encode()); });
  decision.routes[1] = Decision::kSelf;
  expect_error(ErrorCode::protocol_violation, [&] { Decision::decode(decision.encode()); });
}

TEST(VerdictMatrix, HoldsEachTextOnce) {
  VerdictMatrix matrix = all_of("fd+socket", 64, no(3, std::string(1000, 'x')));
  Writer w;
  matrix.encode(w);
  EXPECT_LT(w.bytes().size(), 16'384u);
  Reader r(w.bytes());
  const VerdictMatrix out = VerdictMatrix::decode(r, 64);
  r.end();
  EXPECT_EQ(out.at(63, 0).cause, std::string(1000, 'x'));
  EXPECT_FALSE(out.at(0, 0).tried);
}

TEST(VerdictMatrix, RefusesVerdictsThatAreNotInItsBook) {
  const VerdictMatrix matrix = all_of("fd+socket", 2, no(0, "x"));
  Writer w;
  matrix.encode(w);
  Bytes bytes = w.take();
  bytes[bytes.size() - 2] = std::byte{3};  // the last id: 0 and 1 are fixed, 2 is "x"
  expect_error(ErrorCode::protocol_violation, [&] {
    Reader r(bytes);
    VerdictMatrix::decode(r, 2);
  });
}

TEST(PairSet, IsOfUnorderedPairs) {
  PairSet set(4);
  EXPECT_TRUE(set.empty());
  set.add(3, 1);
  EXPECT_FALSE(set.empty());
  EXPECT_TRUE(set.has(1, 3));
  EXPECT_TRUE(set.has(3, 1));
  EXPECT_EQ(set.peers_of(1), std::vector<int>{3});
  EXPECT_EQ(set.peers_of(3), std::vector<int>{1});
  EXPECT_TRUE(set.peers_of(0).empty());
  EXPECT_EQ(PairSet::all(4).peers_of(2), (std::vector<int>{0, 1, 3}));
  EXPECT_TRUE(PairSet::all(1).empty());
}

TEST(PairSet, ComesBackFromItsBytes) {
  PairSet some(5);
  some.add(0, 4);
  some.add(2, 3);
  for (const PairSet& in : {some, PairSet(5), PairSet::all(5)}) {
    Writer w;
    in.encode(w);
    Reader r(w.bytes());
    const PairSet out = PairSet::decode(r, 5);
    r.end();
    for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(out.peers_of(rank), in.peers_of(rank));
  }
}

TEST(PairsToTry, AreThoseThatNothingHasJoinedBothWays) {
  VerdictMatrix first = all_of("fd+socket", 3, yes());
  first.set(0, 1, no(0, "x"));
  first.set(1, 2, no(1, "x"));
  first.set(2, 1, no(1, "x"));
  EXPECT_EQ(pairs_to_try(3, {}, false).peers_of(0), (std::vector<int>{1, 2}));
  const PairSet second = pairs_to_try(3, {first}, false);
  EXPECT_EQ(second.peers_of(0), std::vector<int>{1});
  EXPECT_EQ(second.peers_of(1), (std::vector<int>{0, 2}));
  VerdictMatrix next("fd+pidfd", 3);
  next.set(0, 1, yes());
  next.set(1, 2, yes());
  const PairSet third = pairs_to_try(3, {first, next}, false);
  EXPECT_TRUE(third.peers_of(0).empty());  // one direction by each
  EXPECT_EQ(third.peers_of(1), std::vector<int>{2});
  EXPECT_EQ(pairs_to_try(3, {first, next}, true).peers_of(0), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace ranklink
