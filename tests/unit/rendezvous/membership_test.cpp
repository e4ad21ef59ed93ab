#include "rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "../base/expect_error.h"
#include "base/error_codec.h"
#include "base/socket.h"

namespace ranklink {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint32_t kLong = 60'000;  // ms

struct Sent {
  int rank = 0;
  FrameType type{};
  SharedBytes payload;
  std::vector<SharedFd> fds;
};

// A Membership whose hooks write down what it would send.
class MembershipTest : public testing::Test {
 protected:
  void make(Membership::Setup setup = {}) {
    if (!setup.reduce) {
      setup.reduce = [](std::string_view round, const std::vector<Bytes>& rows) {
        Writer all;
        all.text(round);
        for (const Bytes& row : rows) all.raw(row);
        return all.take();
      };
    }
    membership_.emplace(
        std::move(setup),
        Membership::Hooks{
            .send =
                [this](int rank, FrameType type, SharedBytes payload, std::vector<SharedFd> fds) {
                  sent_.push_back({rank, type, std::move(payload), std::move(fds)});
                },
            .abort_all =
                [this](const SharedBytes& bytes) {
                  Reader reader(*bytes);
                  aborts_.push_back(decode_error(reader));
                },
            .strangers = [this] { return strangers_; }});
  }

  static Claim claim_of(int rank, int size, std::uint32_t timeout_ms = kLong) {
    return {.version = RANKLINK_VERSION,
            .rank = rank,
            .size = size,
            .host = "host-" + std::to_string(rank),
            .pid = 1000 + rank,
            .start_time = 7,
            .process = {},
            .timeout_ms = timeout_ms,
            .successor = {}};
  }
  bool claim(const Claim& claim, int made_for = -1, int pid = 0, bool local = true) {
    return membership_->claim(claim, made_for, {.local = local, .address = local ? "" : "10.0.0.9"},
                              pid);
  }
  void seat(int size) {
    if (!membership_) make();
    for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(claim(claim_of(rank, size)));
    for (const Sent& sent : sent_) {
      if (sent.type == FrameType::seated && !sent.fds.empty() && !page_) {
        page_.emplace(ControlPage::open(Fd(::dup(sent.fds[0]->get())), size));
      }
    }
    sent_.clear();
  }
  void submit(int rank, std::uint32_t index, const std::string& round, std::string_view row = "",
              std::uint32_t timeout_ms = kLong) {
    const ByteView view = view_of(row);
    const Submission submission{index, round, timeout_ms, Bytes(view.begin(), view.end())};
    membership_->on_frame(rank, {FrameType::submit, submission.encode(), {}, 0});
  }
  void frame(int rank, FrameType type, Bytes payload = {}) {
    membership_->on_frame(rank, {type, std::move(payload), {}, 0});
  }

  const Error& failure() {
    static const Error none({.code = ErrorCode::bad_argument, .cause = "no failure"});
    EXPECT_TRUE(membership_->failure());
    EXPECT_EQ(aborts_.size(), 1u);
    return membership_->failure() ? *membership_->failure() : none;
  }
  void expect_failure(ErrorCode code, int rank, const std::string& step) {
    EXPECT_EQ(failure().code(), code) << failure().what();
    EXPECT_EQ(failure().rank(), rank) << failure().what();
    EXPECT_EQ(failure().step(), step) << failure().what();
    EXPECT_FALSE(failure().remedy().empty()) << failure().what();
    if (aborts_.empty()) return;
    EXPECT_STREQ(aborts_[0].what(), failure().what());
  }
  // Ticks as the server does until the job has failed.
  void tick_until_failure() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!membership_->failure() && !deadline.passed()) {
      const Deadline next = membership_->tick();
      std::this_thread::sleep_for(
          std::min<Deadline::Clock::duration>(next.left(), Milliseconds(20)));
    }
  }

  static Error ended(int rank, const std::string& cause = "exited with status 3") {
    return Error({.code = ErrorCode::rank_exited,
                  .rank = rank,
                  .cause = cause,
                  .remedy = "look at its output"});
  }

  std::optional<Membership> membership_;
  std::vector<Sent> sent_;
  std::vector<Error> aborts_;
  std::string strangers_;
  std::optional<ControlPage> page_;  // as a seated rank sees it
};

// --- Claims ---

TEST_F(MembershipTest, SeatsAllWhenTheLastHasCome) {
  make();
  EXPECT_TRUE(claim(claim_of(1, 3)));
  Claim mine = claim_of(2, 3);
  mine.process = process_token();
  mine.successor = {"unix:///two"};
  EXPECT_TRUE(claim(mine, -1, 0, false));
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(claim(claim_of(0, 3)));
  ASSERT_EQ(sent_.size(), 3u);
  JobId job{};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Sent& sent = sent_[rank];
    EXPECT_EQ(sent.rank, static_cast<int>(rank));
    ASSERT_EQ(sent.type, FrameType::seated);
    const Seating seating = Seating::decode(*sent.payload);
    if (rank == 0) job = seating.job;
    EXPECT_EQ(seating.job, job);
    EXPECT_EQ(seating.holder, 2);
    EXPECT_EQ(seating.successor, 2);
    EXPECT_EQ(seating.successor_endpoints, std::vector<std::string>{"unix:///two"});
    ASSERT_EQ(seating.members.size(), 3u);
    EXPECT_TRUE(seating.members[0].local);
    EXPECT_FALSE(seating.members[2].local);
    EXPECT_EQ(seating.members[2].address, "10.0.0.9");
    EXPECT_EQ(seating.has_page, rank != 2);
    EXPECT_EQ(sent.fds.size(), rank != 2 ? 1u : 0u);
  }
  EXPECT_NE(job, JobId{});
  EXPECT_FALSE(membership_->failure());
}

TEST_F(MembershipTest, NamesNoHolderWhereALauncherServes) {
  make({.size = 1});
  claim(claim_of(0, 1));
  const Seating seating = Seating::decode(*sent_.at(0).payload);
  EXPECT_EQ(seating.holder, -1);
  EXPECT_EQ(seating.successor, -1);
}

TEST_F(MembershipTest, TakesTheLowestRankThatCanAsSuccessor) {
  make();
  for (const int rank : {2, 1, 0}) {
    Claim with_endpoint = claim_of(rank, 3);
    if (rank > 0) with_endpoint.successor = {"unix:///" + std::to_string(rank)};
    claim(with_endpoint);
  }
  EXPECT_EQ(Seating::decode(*sent_.at(0).payload).successor, 1);
}

TEST_F(MembershipTest, NamesBothWhoClaimOneRank) {
  make();
  EXPECT_TRUE(claim(claim_of(1, 3)));
  Claim second = claim_of(1, 3);
  second.host = "elsewhere";
  second.pid = 77;
  EXPECT_FALSE(claim(second));
  expect_failure(ErrorCode::duplicate_rank, 1, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("pid 1001 (started 7) on host host-1"));
  EXPECT_THAT(failure().cause(), HasSubstr("pid 77 (started 7) on host elsewhere"));
}

TEST_F(MembershipTest, NamesWhoComesWithAnotherSize) {
  make();
  EXPECT_TRUE(claim(claim_of(1, 3)));
  EXPECT_FALSE(claim(claim_of(0, 4)));
  expect_failure(ErrorCode::size_mismatch, 0, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("rank 0 of 4, pid 1000"));
  EXPECT_THAT(failure().cause(), HasSubstr("a job of 3 ranks"));
  EXPECT_THAT(failure().cause(), HasSubstr("as rank 1 of 3, pid 1001"));
}

TEST_F(MembershipTest, KnowsTheSizeThatItsLauncherGave) {
  make({.size = 2});
  EXPECT_FALSE(claim(claim_of(0, 3)));
  expect_failure(ErrorCode::size_mismatch, 0, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("a job of 2 ranks"));
}

TEST_F(MembershipTest, RefusesImpossibleSizes) {
  for (const int size : {0, -1, kMaxRanks + 1}) {
    make();
    aborts_.clear();
    EXPECT_FALSE(claim(claim_of(0, size)));
    expect_failure(ErrorCode::size_mismatch, 0, "join");
  }
}

TEST_F(MembershipTest, RefusesAnotherVersion) {
  make();
  Claim old = claim_of(1, 2);
  old.version = "0.0.9-old";
  EXPECT_FALSE(claim(old));
  expect_failure(ErrorCode::version_mismatch, 1, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("0.0.9-old"));
  EXPECT_THAT(failure().cause(), HasSubstr("rank 1 of 2, pid 1001"));
}

TEST_F(MembershipTest, RefusesRanksOutOfRange) {
  for (const int rank : {-1, 3, 1'000'000}) {
    make();
    aborts_.clear();
    EXPECT_FALSE(claim(claim_of(rank, 3)));
    expect_failure(ErrorCode::rank_out_of_range, rank, "join");
    EXPECT_THAT(failure().cause(), HasSubstr("from 0 to 2"));
  }
}

TEST_F(MembershipTest, RefusesARankOnAnothersSocket) {
  make({.size = 3});
  EXPECT_TRUE(claim(claim_of(0, 3), 0));
  EXPECT_FALSE(claim(claim_of(2, 3), 1));
  expect_failure(ErrorCode::duplicate_rank, 2, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("as rank 1"));
}

TEST_F(MembershipTest, TakesNobodyOnceTheJobHasFailed) {
  make();
  claim(claim_of(0, 2));
  membership_->fail(ended(0));
  EXPECT_FALSE(claim(claim_of(1, 2)));
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(aborts_.size(), 1u);
}

TEST_F(MembershipTest, SeatsNobodyWhoResumes) {
  make({.size = 2});
  for (const int rank : {0, 1}) {
    Claim resumed = claim_of(rank, 2, 0);
    resumed.resume = true;
    EXPECT_TRUE(claim(resumed));
  }
  membership_->tick();
  EXPECT_TRUE(sent_.empty());
  EXPECT_FALSE(membership_->failure());
}

// --- Missing ranks ---

TEST_F(MembershipTest, ListsMissingRanksByNumber) {
  make();
  claim(claim_of(2, 5, 0));
  claim(claim_of(0, 5));
  membership_->tick();
  expect_failure(ErrorCode::ranks_missing, 1, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("3 of 5 ranks did not arrive"));
  for (const char* who : {"rank 1 (never joined)", "rank 3 (never", "rank 4 (never"}) {
    EXPECT_THAT(failure().cause(), HasSubstr(who));
  }
  EXPECT_THAT(failure().cause(), Not(HasSubstr("rank 0")));
  EXPECT_THAT(failure().cause(), Not(HasSubstr("rank 2")));
}

TEST_F(MembershipTest, WaitsForMissingRanksUntilTheDeadline) {
  make();
  claim(claim_of(0, 2));
  EXPECT_FALSE(membership_->tick().is_never());
  EXPECT_FALSE(membership_->failure());
}

TEST_F(MembershipTest, TellsOfStrangersWhenRanksAreMissing) {
  make();
  strangers_ = "2 connections were refused, the last from 10.0.0.9: no secret";
  claim(claim_of(0, 2, 0));
  membership_->tick();
  EXPECT_THAT(failure().cause(), HasSubstr(strangers_));
}

TEST_F(MembershipTest, TellsWhatTheProcessOfAMissingRankDoes) {
  make({.size = 2, .pids = {0, static_cast<int>(::getpid())}});
  claim(claim_of(0, 2, 0));
  membership_->tick();
  EXPECT_THAT(failure().cause(), HasSubstr("pid " + std::to_string(::getpid()) + ", running"));
}

TEST_F(MembershipTest, DoesNotListThousands) {
  make();
  claim(claim_of(0, 1001, 0));
  membership_->tick();
  EXPECT_THAT(failure().cause(), HasSubstr("1000 of 1001 ranks"));
  EXPECT_THAT(failure().cause(), HasSubstr("and 968 more"));
  EXPECT_LT(failure().cause().size(), 2000u);
}

// --- Rounds ---

TEST_F(MembershipTest, GivesAllTheResultOfARound) {
  seat(3);
  submit(1, 0, "inspect", "b");
  submit(2, 0, "inspect", "c");
  EXPECT_TRUE(sent_.empty());
  submit(0, 0, "inspect", "a");
  ASSERT_EQ(sent_.size(), 3u);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(sent_[rank].rank, static_cast<int>(rank));
    EXPECT_EQ(sent_[rank].type, FrameType::result);
    Reader reader(*sent_[rank].payload);
    EXPECT_EQ(reader.get<std::uint32_t>(), 0u);
    Reader result(reader.blob(100));
    EXPECT_EQ(result.text(), "inspect");
    EXPECT_EQ(to_hex(result.raw(3)), "616263");
  }
  sent_.clear();
  for (const int rank : {0, 2, 1}) submit(rank, 1, "try");
  ASSERT_EQ(sent_.size(), 3u);
  Reader reader(*sent_[0].payload);
  EXPECT_EQ(reader.get<std::uint32_t>(), 1u);
  EXPECT_FALSE(membership_->failure());
}

TEST_F(MembershipTest, EndsTheJobWhenTheReducerRefuses) {
  make({.reduce = [](std::string_view, const std::vector<Bytes>&) -> Bytes {
    throw Error(
        {.code = ErrorCode::settings_disagree, .step = "inspect", .cause = "x", .remedy = "y"});
  }});
  seat(2);
  submit(0, 0, "inspect");
  submit(1, 0, "inspect");
  expect_failure(ErrorCode::settings_disagree, -1, "inspect");
  EXPECT_TRUE(sent_.empty());
}

TEST_F(MembershipTest, EndsTheJobWhenRoundsComeInAnotherOrder) {
  seat(2);
  submit(0, 0, "try/offer");
  submit(1, 0, "agree");
  expect_failure(ErrorCode::protocol_violation, 1, "agree");
  EXPECT_THAT(failure().cause(),
              HasSubstr("rank 1 is in round 0 'agree' while others are in 0 'try/offer'"));
}

TEST_F(MembershipTest, EndsTheJobWhenARoundIsSkipped) {
  seat(2);
  submit(0, 1, "try");
  expect_failure(ErrorCode::protocol_violation, 0, "try");
}

TEST_F(MembershipTest, EndsTheJobWhenARankSubmitsTwice) {
  seat(2);
  submit(0, 0, "try");
  submit(0, 0, "try");
  expect_failure(ErrorCode::protocol_violation, 0, "try");
}

TEST_F(MembershipTest, RefusesARoundBeforeAllAreSeated) {
  make();
  claim(claim_of(0, 2));
  expect_error(ErrorCode::protocol_violation, [&] { submit(0, 0, "inspect"); });
}

TEST_F(MembershipTest, ListsWhoIsMissingInARound) {
  seat(3);
  page_->set_step(2, "propose");
  submit(0, 0, "try/offer", "", 0);
  membership_->tick();
  expect_failure(ErrorCode::ranks_missing, 1, "try");
  EXPECT_THAT(failure().cause(), HasSubstr("2 of 3 ranks did not arrive"));
  EXPECT_THAT(failure().cause(), HasSubstr("rank 1 ("));
  EXPECT_THAT(failure().cause(), HasSubstr("rank 2 (in step propose)"));
}

// Whoever waits least is the first who would have to accuse somebody.
TEST_F(MembershipTest, EndsARoundAtTheEarliestDeadline) {
  seat(3);
  submit(0, 0, "try", "", kLong);
  submit(1, 0, "try", "", 0);
  membership_->tick();
  expect_failure(ErrorCode::ranks_missing, 2, "try");
}

TEST_F(MembershipTest, EndsJoiningAtTheEarliestDeadline) {
  make();
  claim(claim_of(0, 3, kLong));
  claim(claim_of(1, 3, 0));
  membership_->tick();
  expect_failure(ErrorCode::ranks_missing, 2, "join");
}

// --- Leaving ---

TEST_F(MembershipTest, TellsTheOthersWhoHasLeft) {
  seat(3);
  frame(1, FrameType::goodbye);
  ASSERT_EQ(sent_.size(), 2u);
  for (const Sent& sent : sent_) {
    EXPECT_NE(sent.rank, 1);
    EXPECT_EQ(sent.type, FrameType::left);
    Reader reader(*sent.payload);
    EXPECT_EQ(reader.get<std::int32_t>(), 1);
  }
  sent_.clear();
  frame(2, FrameType::goodbye);
  EXPECT_EQ(sent_.size(), 1u);
  membership_->on_close(1);
  membership_->tick();
  EXPECT_FALSE(membership_->failure());
}

TEST_F(MembershipTest, NamesWhoLeavesWhileOthersAreInARound) {
  seat(3);
  submit(0, 0, "make_shared_buffer/offer");
  frame(2, FrameType::goodbye);
  expect_failure(ErrorCode::rank_left, 2, "make_shared_buffer");
  EXPECT_THAT(failure().cause(), HasSubstr("left while others were in"));
}

TEST_F(MembershipTest, NamesWhoHadLeftBeforeARound) {
  seat(3);
  frame(2, FrameType::goodbye);
  submit(0, 0, "make_shared_buffer/offer");
  expect_failure(ErrorCode::rank_left, 2, "make_shared_buffer");
}

// --- Deaths ---

TEST_F(MembershipTest, TakesAClosedConnectionForADeathAfterAWhile) {
  seat(2);
  page_->set_step(1, "try");
  const auto start = Deadline::Clock::now();
  membership_->on_close(1);
  EXPECT_FALSE(membership_->failure());
  tick_until_failure();
  EXPECT_GE(Deadline::Clock::now() - start, Milliseconds(50));
  expect_failure(ErrorCode::rank_died, 1, "try");
  EXPECT_THAT(failure().cause(), HasSubstr("pid 1001: its connection to the rendezvous closed"));
  EXPECT_THAT(failure().cause(), HasSubstr("isn't known here"));
}

TEST_F(MembershipTest, TakesAMarkedLivenessWordForADeathAfterAWhile) {
  seat(2);
  page_->liveness_word(0).store(FUTEX_OWNER_DIED);
  tick_until_failure();
  expect_failure(ErrorCode::rank_died, 0, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("liveness word"));
}

TEST_F(MembershipTest, SaysWhatACrashedRankLeftOnThePage) {
  seat(2);
  page_->set_step(1, "try");
  CrashSlot& slot = page_->crash_slot(1);
  slot.facts = {.signal = SIGSEGV, .code = SEGV_MAPERR};
  slot.stage = CrashSlot::complete;
  EXPECT_TRUE(page_->died(1));
  membership_->tick();  // nobody will know more: no need to wait
  expect_failure(ErrorCode::rank_killed, 1, "try");
  EXPECT_THAT(failure().cause(), HasSubstr("SIGSEGV"));
  EXPECT_THAT(failure().cause(), HasSubstr("a function that it doesn't have"));
}

TEST_F(MembershipTest, WatchesThePageThatItsRanksShare) {
  seat(2);
  ControlPage shared = ControlPage::create(2);
  shared.set_step(1, "agree");
  membership_->use_page(ControlPage::open(Fd(::dup(shared.fd())), 2));
  EXPECT_EQ(membership_->step_of(1), "agree");
  EXPECT_EQ(membership_->step_of(0), "join");  // it isn't there
  shared.liveness_word(1).store(FUTEX_OWNER_DIED);
  tick_until_failure();
  expect_failure(ErrorCode::rank_died, 1, "agree");
  EXPECT_TRUE(shared.failed());
}

TEST_F(MembershipTest, GivesALauncherTimeToSayMoreOfACrash) {
  make({.size = 2, .pids = {}, .reduce = {}, .reports_ends = true});
  seat(2);
  CrashSlot& slot = page_->crash_slot(1);
  slot.facts = {.signal = SIGABRT, .code = SI_TKILL};
  slot.stage = CrashSlot::complete;
  membership_->tick();
  EXPECT_FALSE(membership_->failure());
  membership_->report_end(1, ended(1));
  expect_failure(ErrorCode::rank_exited, 1, "join");
}

TEST_F(MembershipTest, KnowsHowAProcessOfThisHostEnded) {
  make();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_TRUE(claim(claim_of(0, 2)));
  ASSERT_TRUE(claim(claim_of(1, 2), -1, child));
  for (const Sent& sent : sent_) {
    if (sent.type == FrameType::seated && !page_) {
      page_.emplace(ControlPage::open(Fd(::dup(sent.fds[0]->get())), 2));
    }
  }
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  page_->liveness_word(1).store(FUTEX_OWNER_DIED);
  membership_->tick();
  expect_failure(ErrorCode::rank_killed, 1, "join");
  EXPECT_THAT(failure().cause(), HasSubstr("SIGKILL"));
  ::waitpid(child, nullptr, 0);
}

TEST_F(MembershipTest, LetsAPrimaryReasonPrecedeADerivedOne) {
  make({.size = 2, .pids = {}, .reduce = {}, .reports_ends = true});
  seat(2);
  page_->set_step(1, "try");
  membership_->on_close(1);
  membership_->tick();
  membership_->report_end(1, ended(1));
  expect_failure(ErrorCode::rank_exited, 1, "try");
  EXPECT_THAT(failure().cause(), HasSubstr("status 3"));
  membership_->tick();
  EXPECT_EQ(aborts_.size(), 1u);
}

TEST_F(MembershipTest, KeepsTheFirstFailure) {
  seat(3);
  membership_->fail(ended(2, "first"));
  membership_->fail(ended(1, "second"));
  membership_->report_end(0, ended(0, "third"));
  membership_->on_close(0);
  membership_->tick();
  expect_failure(ErrorCode::rank_exited, 2, "join");
  EXPECT_EQ(failure().cause(), "first");
}

TEST_F(MembershipTest, IgnoresTheEndOfARankThatHasLeft) {
  seat(2);
  frame(1, FrameType::goodbye);
  membership_->report_end(1, ended(1));
  membership_->report_end(-1, ended(-1));
  membership_->report_end(2, ended(2));
  EXPECT_FALSE(membership_->failure());
}

TEST_F(MembershipTest, LetsAProgramThatNeverJoinsEndAsLongAsNobodyWaits) {
  make({.size = 2});
  membership_->report_end(1, ended(1));
  EXPECT_FALSE(membership_->failure());
  claim(claim_of(0, 2));
  expect_failure(ErrorCode::rank_exited, 1, "before join");
}

TEST_F(MembershipTest, NamesARankThatEndsBeforeItJoins) {
  make({.size = 2});
  claim(claim_of(0, 2));
  membership_->report_end(1, ended(1));
  expect_failure(ErrorCode::rank_exited, 1, "before join");
}

TEST_F(MembershipTest, TakesARanksOwnReason) {
  seat(2);
  Writer bytes;
  encode(Error({.code = ErrorCode::rank_failed,
                .rank = 1,
                .step = "try",
                .cause = "out of luck",
                .remedy = "have some"}),
         bytes);
  frame(1, FrameType::fail, bytes.take());
  expect_failure(ErrorCode::rank_failed, 1, "try");
  EXPECT_EQ(page_->failure()->cause(), "out of luck");
}

TEST_F(MembershipTest, YieldsToAFailureThatARankHasPublished) {
  seat(3);
  page_->publish_failure(2, ended(2, "published"));
  membership_->fail(ended(1, "later"));
  EXPECT_EQ(failure().cause(), "published");
  EXPECT_EQ(aborts_.at(0).cause(), "published");
}

// --- Descriptors and the rest ---

TEST_F(MembershipTest, PassesDescriptors) {
  seat(3);
  std::vector<Fd> fds;
  fds.emplace_back(::dup(0));
  membership_->on_frame(0, {FrameType::post, Posting{5, {1, 2}}.encode(), std::move(fds), 1});
  frame(1, FrameType::post, Posting{5, {2}}.encode());  // its descriptor was dropped on the way
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].rank, 1);
  EXPECT_EQ(sent_[0].type, FrameType::pass);
  EXPECT_EQ(sent_[0].fds.size(), 1u);
  Writer ack;
  ack.put(std::uint32_t{1});
  frame(2, FrameType::pass_ack, ack.take());
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[2].rank, 2);
  EXPECT_TRUE(Passed::decode(*sent_[2].payload).items.at(0).withheld);
}

TEST_F(MembershipTest, BrokersStreams) {
  seat(2);
  frame(0, FrameType::broker, Posting{5, {1}}.encode());
  EXPECT_TRUE(sent_.empty());
  frame(1, FrameType::broker, Posting{5, {0}}.encode());
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].fds.size(), 1u);
  EXPECT_EQ(sent_[1].fds.size(), 1u);
}

TEST_F(MembershipTest, RefusesFramesThatOnlyAServerSends) {
  seat(2);
  for (const FrameType type :
       {FrameType::challenge, FrameType::hello, FrameType::proof, FrameType::refusal,
        FrameType::claim, FrameType::seated, FrameType::result, FrameType::abort, FrameType::left,
        FrameType::pass, FrameType::meet, FrameType::meet_ack}) {
    expect_error(ErrorCode::protocol_violation, [&] { frame(1, type); });
  }
}

TEST_F(MembershipTest, RefusesMutilatedFrames) {
  seat(2);
  for (const FrameType type : {FrameType::submit, FrameType::post, FrameType::broker,
                               FrameType::pass_ack, FrameType::fail}) {
    expect_error(ErrorCode::protocol_violation, [&] { frame(1, type, Bytes(1)); });
  }
}

TEST_F(MembershipTest, KnowsTheStepOfEachRank) {
  make();
  claim(claim_of(0, 3));
  EXPECT_EQ(membership_->step_of(0), "join");
  EXPECT_EQ(membership_->step_of(1), "");
  EXPECT_EQ(membership_->step_of(-1), "");
  EXPECT_EQ(membership_->step_of(3), "");
  claim(claim_of(1, 3));
  claim(claim_of(2, 3));
  page_.emplace(ControlPage::open(Fd(::dup(sent_.at(0).fds.at(0)->get())), 3));
  submit(1, 0, "try/offer");
  EXPECT_EQ(membership_->step_of(1), "try");
  page_->begin_operation(1, {Collective::all_reduce, 0, 3});
  EXPECT_EQ(membership_->step_of(1), "all_reduce #3");
}

}  // namespace
}  // namespace ranklink
