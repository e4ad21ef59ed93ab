#include "base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ranklink {
namespace {

using Line = std::pair<LogLevel, std::string>;

class Log : public testing::Test {
 protected:
  ~Log() override {
    set_log_sink({});
    set_log_level(LogLevel::warn);
  }
  void collect() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      lines_.emplace_back(level, std::string(line));
    });
  }
  std::vector<Line> lines_;
};

TEST_F(Log, GoesToTheSink) {
  collect();
  log(LogLevel::warn, "rank {} is {}", 3, "late");
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::warn, "rank 3 is late"}}));
}

TEST_F(Log, DropsLinesBelowItsLevel) {
  collect();
  log(LogLevel::info, "dropped: the default is warn");
  set_log_level(LogLevel::error);
  log(LogLevel::warn, "dropped");
  log(LogLevel::error, "kept");
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, "kept too");
  set_log_level(LogLevel::off);
  log(LogLevel::error, "dropped");
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::error, "kept"}, {LogLevel::debug, "kept too"}}));
}

TEST_F(Log, GoesToStandardErrorWithoutASink) {
  collect();
  set_log_sink({});
  testing::internal::CaptureStderr();
  log(LogLevel::warn, "{}", "said once");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ranklink warn: said once\n");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, NeverCallsTheSinkFromTwoThreadsAtOnce) {
  std::atomic<int> inside = 0;
  std::atomic<bool> overlapped = false;
  int lines = 0;  // not atomic: the lock of the log guards it
  set_log_sink([&](LogLevel, std::string_view) {
    if (inside.fetch_add(1) != 0) overlapped = true;
    ++lines;
    std::this_thread::yield();
    inside.fetch_sub(1);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log(LogLevel::error, "line {}", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(lines, 800);
}

TEST(LogLevel, IsParsedFromItsName) {
  for (const LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off}) {
    EXPECT_EQ(parse_log_level(to_string(level)), level);
  }
  EXPECT_EQ(parse_log_level("verbose"), std::nullopt);
  EXPECT_EQ(parse_log_level(""), std::nullopt);
}

}  // namespace
}  // namespace ranklink
