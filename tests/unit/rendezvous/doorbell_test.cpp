#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "rendezvous/control_page.h"

namespace ranklink {
namespace {

using std::chrono::seconds;

Deadline safety_net() { return Deadline::after(seconds(20)); }

ControlPage opened(const ControlPage& page) {
  return ControlPage::open(Fd(::dup(page.fd())), page.size());
}

// Sleeps as a rank does, in a thread, until `done`; tells whether it is asleep, or about to be:
// then whoever wakes it finds it.
class Sleeper {
 public:
  Sleeper(ControlPage& page, int rank, int awaited, std::function<bool()> done)
      : done_(std::move(done)), thread_([this, &page, rank, awaited] {
          const auto ready = [this] {
            if (done_()) return true;
            asleep_ = true;
            return false;
          };
          while (!done_()) {
            page.sleep(rank, awaited, ready, Deadline::never(), seconds(60));
            if (asleep_.exchange(false)) ++woken_;
          }
        }) {
    while (!asleep_ && woken_ == 0) std::this_thread::yield();
  }
  ~Sleeper() { thread_.join(); }

  int woken() const { return woken_; }
  /// Waits until it has been woken `times`.
  void await(int times) const {
    const Deadline deadline = Deadline::after(seconds(20));
    while (woken_ < times && !deadline.passed()) std::this_thread::yield();
    EXPECT_GE(woken_, times) << "a wake was missed";
  }

 private:
  std::function<bool()> done_;
  std::atomic<bool> asleep_{false};
  std::atomic<int> woken_{0};
  std::thread thread_;
};

void ring(ControlPage& page, int rank, int from) {
  ControlPage::order_before_wake();
  page.wake(rank, from);
}

TEST(Doorbell, WakesWhoSleeps) {
  ControlPage page = ControlPage::create(2);
  ControlPage theirs = opened(page);
  std::atomic<int> told{0};
  const auto start = Deadline::Clock::now();
  const auto await = [&](ControlPage& on, int rank, const std::function<bool()>& ready) {
    while (!ready()) on.sleep(rank, 1 - rank, ready, safety_net(), seconds(20));
  };
  std::thread sleeper([&] {
    for (int turn = 1; turn <= 100; ++turn) {
      await(theirs, 1, [&] { return told >= turn; });
      told = -turn;
      ring(theirs, 0, 1);
    }
  });
  for (int turn = 1; turn <= 100; ++turn) {
    told = turn;
    ring(page, 1, 0);
    await(page, 0, [&] { return told == -turn; });
  }
  sleeper.join();
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10)) << "a wake was missed";
}

TEST(Doorbell, OfAllRanksRingsWhenOneFails) {
  std::vector<ControlPage> pages;
  pages.push_back(ControlPage::create(3));
  while (pages.size() < 3) pages.push_back(opened(pages[0]));
  const auto start = Deadline::Clock::now();
  {
    const auto failed = [&] { return pages[0].failed(); };
    const Sleeper one(pages[0], 0, 1, failed);
    const Sleeper two(pages[1], 1, ControlPage::kAnyRank, failed);
    const Sleeper three(pages[2], 2, 0, failed);
    pages[1].publish_failure(1, Error({.code = ErrorCode::rank_failed, .rank = 1, .cause = "x"}));
  }
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

// A rank that has hundreds of peers isn't woken by each of them.
TEST(Doorbell, WakesOnlyForWhomIsAwaited) {
  ControlPage page = ControlPage::create(3);
  std::atomic<bool> done{false};
  const Sleeper sleeper(page, 0, 1, [&] { return done.load(); });
  for (int i = 0; i < 1000; ++i) ring(page, 0, 2);
  std::this_thread::sleep_for(Milliseconds(20));
  EXPECT_EQ(sleeper.woken(), 0);
  done = true;
  ring(page, 0, 1);
  sleeper.await(1);
}

TEST(Doorbell, WakesForAnyoneWhoWaitsForAny) {
  ControlPage page = ControlPage::create(3);
  for (const int from : {0, 1, 2}) {
    std::atomic<bool> done{false};
    const Sleeper sleeper(page, 0, ControlPage::kAnyRank, [&] { return done.load(); });
    done = true;
    ring(page, 0, from);
    sleeper.await(1);
  }
}

// Two threads of one rank, which wait for different peers in groups of their own.
TEST(Doorbell, WakesAllWhoSleepForARank) {
  ControlPage page = ControlPage::create(3);
  for (const int first : {1, 2}) {
    std::atomic<int> done{0};
    const Sleeper one(page, 0, 1, [&] { return (done & 1) != 0; });
    const Sleeper two(page, 0, 2, [&] { return (done & 2) != 0; });
    done |= first;
    ring(page, 0, first);
    (first == 1 ? one : two).await(1);
    // The one that is left may have been woken too, and sleeps again.
    const int other = 3 - first;
    done |= other;
    ring(page, 0, other);
    (other == 1 ? one : two).await(1);
  }
}

TEST(Doorbell, SleepsNoLongerThanItsSlice) {
  const ControlPage page = ControlPage::create(2);
  const auto start = Deadline::Clock::now();
  const auto never = [] { return false; };
  page.sleep(0, 1, never, Deadline::never(), Milliseconds(20));
  page.sleep(0, 1, never, Deadline::after(Milliseconds(20)), seconds(60));
  page.sleep(
      0, 1, [] { return true; }, Deadline::never(), seconds(60));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

TEST(Doorbell, DoesNotSleepOnceTheJobHasFailed) {
  ControlPage page = ControlPage::create(2);
  page.publish_failure(2, Error({.code = ErrorCode::rank_failed, .rank = 1, .cause = "x"}));
  const auto start = Deadline::Clock::now();
  page.sleep(
      0, 1, [] { return false; }, Deadline::never(), seconds(60));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

}  // namespace
}  // namespace ranklink
