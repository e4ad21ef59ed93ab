#include "rendezvous/messages.h"

#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "refusals.h"

namespace ranklink {
namespace {

JobId job_id(std::uint8_t first) {
  JobId id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(first + i);
  return id;
}

Claim sample_claim() {
  return {.version = "1.2.3",
          .rank = 3,
          .size = 8,
          .host = "node-7",
          .pid = 1234,
          .start_time = 0x1234567890abcdef,
          .process = job_id(1),
          .timeout_ms = 120'000,
          .successor = {"unix:///dev/shm/x", "tcp://[fd00::3]:29400"},
          .resume = true};
}

TEST(Claim, BringsEveryMemberAcross) {
  const Claim in = sample_claim();
  const Claim out = Claim::decode(in.encode());
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.rank, in.rank);
  EXPECT_EQ(out.size, in.size);
  EXPECT_EQ(out.host, in.host);
  EXPECT_EQ(out.pid, in.pid);
  EXPECT_EQ(out.start_time, in.start_time);
  EXPECT_EQ(out.process, in.process);
  EXPECT_EQ(out.timeout_ms, in.timeout_ms);
  EXPECT_EQ(out.successor, in.successor);
  EXPECT_EQ(out.resume, in.resume);
}

TEST(Claim, NamesTheClaimant) {
  EXPECT_EQ(sample_claim().text(),
            "rank 3 of 8, pid 1234 (started 1311768467294899695) on host node-7");
}

TEST(Claim, IsTakenWholeOrNotAtAll) { expect_whole_only(sample_claim().encode(), Claim::decode); }

TEST(Claim, LimitsItsTexts) {
  const auto refused = [](auto change) {
    Claim claim = sample_claim();
    change(claim);
    expect_error(ErrorCode::protocol_violation, [&] { Claim::decode(claim.encode()); });
  };
  refused([](Claim& c) { c.version.assign(65, 'v'); });
  refused([](Claim& c) { c.host.assign(257, 'h'); });
  refused([](Claim& c) { c.successor.assign(17, "x"); });
  refused([](Claim& c) { c.successor.assign(1, std::string(513, 'x')); });
}

Seating sample_seating() {
  return {.job = job_id(9),
          .holder = 0,
          .successor = 1,
          .successor_endpoints = {"unix:///dev/shm/y"},
          .members = {{true, ""}, {false, "10.0.0.2"}, {false, "fd00::3"}},
          .has_page = true};
}

TEST(Seating, BringsEveryMemberAcross) {
  const Seating in = sample_seating();
  const Seating out = Seating::decode(in.encode());
  EXPECT_EQ(out.job, in.job);
  EXPECT_EQ(out.holder, 0);
  EXPECT_EQ(out.successor, 1);
  EXPECT_EQ(out.successor_endpoints, in.successor_endpoints);
  ASSERT_EQ(out.members.size(), 3u);
  EXPECT_TRUE(out.members[0].local);
  EXPECT_EQ(out.members[0].address, "");
  EXPECT_FALSE(out.members[1].local);
  EXPECT_EQ(out.members[1].address, "10.0.0.2");
  EXPECT_EQ(out.members[2].address, "fd00::3");
  EXPECT_TRUE(out.has_page);
}

TEST(Seating, IsTakenWholeOrNotAtAll) {
  expect_whole_only(sample_seating().encode(), Seating::decode);
}

TEST(Submission, BringsEveryMemberAcross) {
  const Submission in{7, "try/verdicts", 1500, Bytes(300, std::byte{0xa5})};
  const Submission out = Submission::decode(in.encode());
  EXPECT_EQ(out.index, 7u);
  EXPECT_EQ(out.round, "try/verdicts");
  EXPECT_EQ(out.timeout_ms, 1500u);
  EXPECT_EQ(out.row, in.row);
}

TEST(Submission, IsTakenWholeOrNotAtAll) {
  expect_whole_only(Submission{7, "inspect", 1500, Bytes(9)}.encode(), Submission::decode);
  expect_whole_only(Submission{}.encode(), Submission::decode);
}

TEST(Posting, BringsEveryMemberAcross) {
  const Posting in{42, {0, 5, -1, 65'535}};
  const Posting out = Posting::decode(in.encode());
  EXPECT_EQ(out.tag, 42u);
  EXPECT_EQ(out.peers, in.peers);
}

TEST(Posting, IsTakenWholeOrNotAtAll) {
  expect_whole_only(Posting{42, {0, 5, 7}}.encode(), Posting::decode);
  expect_whole_only(Posting{42, {}}.encode(), Posting::decode);
}

TEST(Passed, BringsEveryMemberAcross) {
  const Passed in{{{1, 10, false}, {2, 20, true}, {3, 30, false, true}}};
  const Passed out = Passed::decode(in.encode());
  ASSERT_EQ(out.items.size(), 3u);
  EXPECT_EQ(out.items[0].from, 1);
  EXPECT_EQ(out.items[0].tag, 10u);
  EXPECT_FALSE(out.items[0].lost);
  EXPECT_EQ(out.items[1].from, 2);
  EXPECT_EQ(out.items[1].tag, 20u);
  EXPECT_TRUE(out.items[1].lost);
  EXPECT_FALSE(out.items[1].withheld);
  EXPECT_FALSE(out.items[2].lost);
  EXPECT_TRUE(out.items[2].withheld);
}

TEST(Passed, IsTakenWholeOrNotAtAll) {
  expect_whole_only(Passed{{{1, 10, false}, {2, 20, true}}}.encode(), Passed::decode);
}

// A count may not ask for more than the message holds, or a few bytes would take gigabytes.
TEST(Messages, RefuseAbsurdCounts) {
  Bytes posting = Posting{1, {2}}.encode();
  for (std::size_t i = 4; i < 8; ++i) posting[i] = std::byte{0xff};
  expect_error(ErrorCode::protocol_violation, [&] { Posting::decode(posting); });
  Bytes passed = Passed{{{1, 10, false}}}.encode();
  for (std::size_t i = 0; i < 4; ++i) passed[i] = std::byte{0xff};
  expect_error(ErrorCode::protocol_violation, [&] { Passed::decode(passed); });
}

TEST(Proofs, DependOnSecretSideAndBothNonces) {
  const Secret secret = Secret::from_text("one");
  const auto a = random_bytes<Nonce>();
  const auto b = random_bytes<Nonce>();
  const Digest proof = client_proof(secret, a, b);
  EXPECT_EQ(client_proof(secret, a, b), proof);
  EXPECT_NE(client_proof(Secret::from_text("two"), a, b), proof);
  EXPECT_NE(client_proof(secret, b, a), proof);
  EXPECT_NE(client_proof(secret, a, random_bytes<Nonce>()), proof);
  EXPECT_NE(client_proof(secret, random_bytes<Nonce>(), b), proof);
  // Nobody may answer a challenge with what the other side said.
  EXPECT_NE(server_proof(secret, a, b), proof);
  EXPECT_NE(server_proof(secret, b, a), proof);
}

TEST(ProcessToken, StaysTheSame) {
  EXPECT_EQ(process_token(), process_token());
  EXPECT_NE(process_token(), JobId{});
}

}  // namespace
}  // namespace ranklink
