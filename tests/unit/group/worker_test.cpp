#include "group/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "../base/expect_error.h"

namespace ranklink {
namespace {

using std::chrono::milliseconds;

const auto kMark = std::make_shared<const ForkMark>();

Error error_of(const std::string& cause) {
  return Error({.code = ErrorCode::rank_failed, .rank = 0, .cause = cause});
}

// Keeps a worker busy until it is opened.
class Gate {
 public:
  Worker::Task task() {
    return [this] {
      entered_.set_value();
      opened_.get_future().wait();
    };
  }
  void await() { entered_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> opened_;
};

TEST(Worker, DoesOneAfterTheOther) {
  Worker worker{kMark};
  std::vector<int> done;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) works.emplace_back(worker.start([&done, i] { done.push_back(i); }));
  works.back().wait();
  ASSERT_EQ(done.size(), 200u);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
    EXPECT_TRUE(works[static_cast<std::size_t>(i)].done());
    EXPECT_FALSE(works[static_cast<std::size_t>(i)].error());
  }
}

TEST(Worker, TellsWhetherItIsIdle) {
  Worker worker{kMark};
  EXPECT_TRUE(worker.idle());
  worker.wait_until_idle();
  Gate gate;
  std::atomic<bool> second{false};
  worker.start(gate.task());
  worker.start([&] { second = true; });
  gate.await();
  EXPECT_FALSE(worker.idle());
  gate.open();
  worker.wait_until_idle();
  EXPECT_TRUE(worker.idle());
  EXPECT_TRUE(second);
}

TEST(Worker, GoesOnAfterAnError) {
  Worker worker{kMark};
  const Work bad(worker.start([] { throw error_of("out of luck"); }));
  const Work good(worker.start([] {}));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_NE(expect_error(ErrorCode::rank_failed, [&] { bad.wait(); }).find("out of luck"),
              std::string::npos);
  }
  expect_error(ErrorCode::rank_failed, [&] { bad.wait_for(milliseconds(0)); });
  EXPECT_TRUE(bad.done());
  ASSERT_TRUE(bad.error());
  EXPECT_EQ(bad.error()->cause(), "out of luck");
  good.wait();
  EXPECT_FALSE(good.error());
}

TEST(Work, WaitsNoLongerThanItIsTold) {
  Worker worker{kMark};
  Gate gate;
  const Work work(worker.start(gate.task()));
  const Work copy = work;
  EXPECT_FALSE(work.wait_for(milliseconds(0)));
  EXPECT_FALSE(work.wait_for(milliseconds(10)));
  EXPECT_FALSE(work.wait_for(milliseconds(-5)));
  EXPECT_FALSE(work.done());
  EXPECT_FALSE(work.error());
  gate.open();
  EXPECT_TRUE(copy.wait_for(milliseconds(20'000)));
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(work.wait_for(milliseconds(0)));
}

TEST(Work, WaitsForTheLongestTime) {
  Worker worker{kMark};
  const Work work(worker.start([] {}));
  EXPECT_TRUE(work.wait_for(milliseconds::max()));
  EXPECT_TRUE(work.wait_for(milliseconds(INT64_MAX / 1000)));
}

TEST(Work, IsWaitedForByAnyThread) {
  Worker worker{kMark};
  Gate gate;
  const Work work(worker.start(gate.task()));
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&woken, work] {
      work.wait();
      ++woken;
    });
  }
  gate.open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 4);
}

TEST(Work, GoesOnWhenItIsDropped) {
  std::atomic<bool> done{false};
  {
    Worker worker{kMark};
    {
      const Work dropped(worker.start([&] { done = true; }));
    }
    worker.wait_until_idle();
  }
  EXPECT_TRUE(done);
}

// What is being done is done; what waits behind it is not begun.
TEST(Worker, EndsWhatWaitsWhenItIsClosed) {
  std::atomic<bool> begun{false};
  Gate gate;
  std::optional<Work> first;
  std::optional<Work> second;
  std::optional<Work> third;
  {
    Worker worker{kMark};
    first.emplace(worker.start(gate.task()));
    second.emplace(worker.start([&] { begun = true; }));
    gate.await();
    worker.close(error_of("closed"));
    EXPECT_TRUE(second->done());
    third.emplace(worker.start([&] { begun = true; }));
    EXPECT_FALSE(first->done());
    EXPECT_FALSE(worker.idle());
    gate.open();
  }
  EXPECT_TRUE(first->done());
  EXPECT_FALSE(first->error());
  EXPECT_FALSE(begun);
  for (const auto& work : {second, third}) {
    expect_error(ErrorCode::rank_failed, [&] { work->wait(); });
    EXPECT_EQ(work->error()->cause(), "closed");
  }
}

TEST(Worker, IsIdleOnceItIsClosed) {
  Worker worker{kMark};
  worker.close(error_of("closed"));
  worker.start([] {});
  EXPECT_TRUE(worker.idle());
  worker.wait_until_idle();
}

TEST(Worker, DoesWhatWaitsBeforeItEnds) {
  std::atomic<int> done{0};
  {
    Worker worker{kMark};
    for (int i = 0; i < 50; ++i) worker.start([&] { ++done; });
  }
  EXPECT_EQ(done, 50);
}

}  // namespace
}  // namespace ranklink
