#include "rendezvous/control_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "../base/expect_error.h"

namespace ranklink {
namespace {

using std::chrono::seconds;
using State = ControlPage::State;

Deadline safety_net() { return Deadline::after(seconds(20)); }

Error failure_of(int rank, const std::string& cause = "it broke") {
  return Error({.code = ErrorCode::rank_failed,
                .rank = rank,
                .peer = 1,
                .step = "try",
                .cause = cause,
                .remedy = "mend it",
                .context = "rank 2 waited"});
}

ControlPage opened(const ControlPage& page) {
  return ControlPage::open(Fd(::dup(page.fd())), page.size());
}

TEST(ControlPage, IsSharedByWhoeverOpensIt) {
  ControlPage mine = ControlPage::create(3);
  ControlPage theirs = opened(mine);
  EXPECT_EQ(theirs.size(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(theirs.state(rank), State::absent);
    EXPECT_EQ(theirs.step(rank), "");
    EXPECT_FALSE(theirs.died(rank));
  }
  EXPECT_FALSE(theirs.failure());
  mine.set_state(1, State::alive);
  mine.set_step(1, "try");
  mine.set_state(2, State::left);
  EXPECT_EQ(theirs.state(0), State::absent);
  EXPECT_EQ(theirs.state(1), State::alive);
  EXPECT_EQ(theirs.state(2), State::left);
  EXPECT_EQ(theirs.step(1), "try");
  EXPECT_EQ(theirs.step(2), "");
}

TEST(ControlPage, SaysInWhichOperationARankIs) {
  ControlPage page = ControlPage::create(2);
  page.set_step(0, "agree");
  EXPECT_EQ(page.step(0), "agree");
  EXPECT_FALSE(page.operation(0));
  const Operation sum{Collective::all_reduce, 0, 5};
  page.begin_operation(0, sum);
  EXPECT_EQ(page.step(0), "all_reduce #5");
  page.end_operation(0, sum);
  EXPECT_EQ(page.step(0), "its program, after all_reduce #5");
  page.begin_operation(0, {Collective::barrier, 0xffff, 0x1'0000'0006});
  EXPECT_EQ(page.step(0), "barrier #4294967302 of a subgroup");
  EXPECT_EQ(page.step(1), "");
  page.set_step(0, "agree");
  EXPECT_EQ(page.step(0), "agree");
  EXPECT_FALSE(page.operation(0));
}

TEST(ControlPage, GivesTheOperationBackAsItWas) {
  ControlPage page = ControlPage::create(1);
  for (int i = 0; i <= static_cast<int>(Collective::make_shared_buffer); ++i) {
    for (const std::uint16_t group : {0, 1, 0xffff}) {
      const Operation in{static_cast<Collective>(i), group, 0xff'ffff'ffff};
      for (const bool ended : {false, true}) {
        ended ? page.end_operation(0, in) : page.begin_operation(0, in);
        const auto out = opened(page).operation(0);
        ASSERT_TRUE(out);
        EXPECT_EQ(out->collective, in.collective);
        EXPECT_EQ(out->group, in.group);
        EXPECT_EQ(out->sequence, in.sequence);
      }
    }
  }
}

TEST(ControlPage, CutsALongStep) {
  ControlPage page = ControlPage::create(1);
  page.set_step(0, std::string(100, 's'));
  EXPECT_EQ(page.step(0), std::string(47, 's'));
  page.set_step(0, "x");
  EXPECT_EQ(page.step(0), "x");
  page.set_step(0, "");
  EXPECT_EQ(page.step(0), "");
}

TEST(ControlPage, ShowsAFailureWithAllItsParts) {
  ControlPage page = ControlPage::create(2);
  page.publish_failure(1, failure_of(1));
  const auto failure = opened(page).failure();
  ASSERT_TRUE(failure);
  EXPECT_STREQ(failure->what(), failure_of(1).what());
  EXPECT_EQ(failure->code(), ErrorCode::rank_failed);
  EXPECT_EQ(failure->rank(), 1);
  EXPECT_EQ(failure->peer(), 1);
  EXPECT_EQ(failure->context(), "rank 2 waited");
}

TEST(ControlPage, LetsTheFirstFailureWin) {
  ControlPage page = ControlPage::create(3);
  page.publish_failure(2, failure_of(2, "first"));
  page.publish_failure(0, failure_of(0, "second"));
  page.publish_failure(2, failure_of(2, "third"));
  page.publish_failure(3, failure_of(-1, "the rendezvous's own"));
  EXPECT_EQ(page.failure()->cause(), "first");
}

TEST(ControlPage, HasASlotForTheRendezvous) {
  ControlPage page = ControlPage::create(3);
  page.publish_failure(3, failure_of(-1, "the rendezvous's own"));
  EXPECT_EQ(page.failure()->cause(), "the rendezvous's own");
}

TEST(ControlPage, CutsLongTextsOfAFailure) {
  ControlPage page = ControlPage::create(1);
  const std::string text(10'000, 't');
  page.publish_failure(0, Error({.code = ErrorCode::rank_failed,
                                 .rank = 0,
                                 .step = text,
                                 .cause = text,
                                 .remedy = text,
                                 .context = text}));
  const auto failure = page.failure();
  ASSERT_TRUE(failure);
  // Of each there is something, and most of the cause.
  for (const std::string* part : {&failure->step(), &failure->remedy(), &failure->context()}) {
    EXPECT_EQ(*part, std::string(342, 't') + "...");
  }
  EXPECT_EQ(failure->cause(), std::string(690, 't') + "...");
}

TEST(ControlPage, IsRefusedAtAnotherSize) {
  const ControlPage page = ControlPage::create(3);
  for (const int size : {-1, 0, 1, 2, 4, 64, 65'537}) {
    expect_error(ErrorCode::protocol_violation,
                 [&] { ControlPage::open(Fd(::dup(page.fd())), size); });
  }
}

TEST(ControlPage, IsRefusedIfItIsNone) {
  const std::size_t enough = 16'384;
  expect_error(ErrorCode::protocol_violation,
               [&] { ControlPage::open(make_shared_memory("zeros", enough), 1); });
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), enough), 0);
  expect_error(ErrorCode::protocol_violation, [&] { ControlPage::open(std::move(unsealed), 1); });
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd other(ends[1]);
  expect_error(ErrorCode::protocol_violation, [&] { ControlPage::open(Fd(ends[0]), 1); });
}

// A peer may have written anything: no such value may lead outside of the page.
TEST(ControlPage, SurvivesAWinnerThatIsNotThere) {
  ControlPage page = ControlPage::create(2);
  const Mapping raw(page.fd(), 64);
  auto* header = reinterpret_cast<std::uint32_t*>(raw.data());
  for (const std::uint32_t winner : {1u, 4u, 0x7fffffffu, 0xffffffffu}) {
    header[3] = winner;  // behind the magic and the size
    EXPECT_FALSE(page.failure()) << winner;
  }
}

// Nor may a call be looked up by a number that no call has.
TEST(ControlPage, SurvivesAnOperationThatIsNone) {
  ControlPage page = ControlPage::create(1);
  page.begin_operation(0, {static_cast<Collective>(100), 0, 5});
  EXPECT_FALSE(page.operation(0));
  EXPECT_EQ(page.step(0), "");
}

// A rank in a process of its own, which says that it is there and does what `body` says.
class LivenessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("RUNNING_UNDER_QEMU") != nullptr) {
      GTEST_SKIP() << "user-mode emulation has no robust lists";
    }
  }
  ~LivenessTest() override { end(SIGKILL); }

  template <typename Body>
  void start(Body body) {
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      body();
      ::_exit(0);
    }
  }
  void await_alive() {
    const Deadline deadline = safety_net();
    while (page_.state(1) != State::alive && !deadline.passed()) std::this_thread::yield();
    ASSERT_EQ(page_.state(1), State::alive);
  }
  void end(int signal = 0) {
    if (child_ <= 0) return;
    if (signal != 0) ::kill(child_, signal);
    EXPECT_EQ(::waitpid(child_, nullptr, 0), child_);
    child_ = -1;
  }

  ControlPage page_ = ControlPage::create(2);
  pid_t child_ = -1;
};

TEST_F(LivenessTest, ShowsAKill) {
  start([&] {
    const LivenessBeacon beacon(page_, 1);
    page_.set_state(1, State::alive);
    for (;;) ::pause();
  });
  await_alive();
  EXPECT_FALSE(page_.died(1));
  EXPECT_FALSE(page_.died(0));
  end(SIGKILL);
  EXPECT_TRUE(page_.died(1));
  EXPECT_FALSE(page_.died(0));
}

TEST_F(LivenessTest, ShowsAnExitWithoutLeaving) {
  start([&] {
    const LivenessBeacon beacon(page_, 1);
    page_.set_state(1, State::alive);
    ::_exit(0);
  });
  end();
  EXPECT_EQ(page_.state(1), State::alive);
  EXPECT_TRUE(page_.died(1));
}

TEST_F(LivenessTest, DoesNotTakeAnOrderlyEndForADeath) {
  start([&] {
    { const LivenessBeacon beacon(page_, 1); }
    page_.set_state(1, State::left);
  });
  end();
  EXPECT_EQ(page_.state(1), State::left);
  EXPECT_FALSE(page_.died(1));
}

TEST_F(LivenessTest, CanBeginAgain) {
  for (int i = 0; i < 20; ++i) {
    const LivenessBeacon beacon(page_, 1);
    EXPECT_NE(page_.liveness_word(1).load(), 0u);
    EXPECT_FALSE(page_.died(1));
  }
  EXPECT_EQ(page_.liveness_word(1).load(), 0u);
}

}  // namespace
}  // namespace ranklink
