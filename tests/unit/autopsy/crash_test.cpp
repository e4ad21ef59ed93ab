#include "autopsy/crash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

namespace ranklink {
namespace {

using testing::HasSubstr;

std::string text_of(const CrashFacts& facts) { return Crash{.facts = facts}.text(); }

TEST(Crash, SaysWhatTheInstructionDid) {
  EXPECT_EQ(text_of({.signal = SIGSEGV, .code = SEGV_MAPERR}),
            "it called a function that it doesn't have (address 0)");
  EXPECT_EQ(text_of({.signal = SIGSEGV, .code = SEGV_ACCERR, .address = 0x77, .pc = 0x77}),
            "it jumped to address 0x77, where no code is");
  EXPECT_EQ(text_of({.signal = SIGSEGV,
                     .code = SEGV_MAPERR,
                     .address = 0x10,
                     .pc = 0x400000,
                     .stack = 0x7fff0ff0}),
            "it touched address 0x10, where no memory is");
  EXPECT_EQ(text_of({.signal = SIGSEGV,
                     .code = SEGV_ACCERR,
                     .address = 0x10,
                     .pc = 0x400000,
                     .stack = 0x7fff0ff0}),
            "the memory at address 0x10 doesn't allow what it did");
  EXPECT_EQ(text_of({.signal = SIGSEGV, .code = SI_KERNEL, .pc = 0x400000}),
            "it used an address that can't exist");
  EXPECT_THAT(text_of({.signal = SIGSEGV,
                       .code = SEGV_MAPERR,
                       .address = 0x7fff0000,
                       .pc = 0x400000,
                       .stack = 0x7fff0ff0}),
              HasSubstr("its stack is used up"));
  EXPECT_THAT(text_of({.signal = SIGBUS, .code = BUS_ADRERR, .address = 0x2000, .pc = 0x400000}),
              HasSubstr("0x2000 has no memory behind it"));
  EXPECT_EQ(text_of({.signal = SIGFPE, .code = FPE_INTDIV, .pc = 0x400000}),
            "it divided an integer by 0");
  EXPECT_THAT(text_of({.signal = SIGILL, .code = ILL_ILLOPN, .address = 0x400000, .pc = 0x400000}),
              HasSubstr("0x400000"));
}

TEST(Crash, SaysWhoSentTheSignalAndInWhichThread) {
  EXPECT_EQ(text_of({.signal = SIGABRT, .code = SI_TKILL}), "");  // abort() says it all
  EXPECT_EQ(text_of({.signal = SIGSEGV, .code = SI_USER, .sender = 71}), "sent by process 71");
  CrashFacts facts{.signal = SIGABRT, .code = SI_TKILL};
  std::memcpy(facts.thread.data(), "watcher", 8);
  EXPECT_EQ(text_of(facts), "in thread watcher");
  facts.code = SI_USER;
  facts.sender = 71;
  EXPECT_EQ(text_of(facts), "sent by process 71, in thread watcher");
}

class CrashSlotTest : public testing::Test {
 protected:
  void write(std::string_view backtrace) {
    std::copy(backtrace.begin(), backtrace.end(), slot_.backtrace.begin());
    slot_.facts = {.signal = SIGSEGV, .code = SEGV_MAPERR, .address = 5, .pc = 6};
    slot_.stage = CrashSlot::complete;
  }
  CrashSlot slot_{};
};

TEST_F(CrashSlotTest, HoldsNothingAtFirst) {
  EXPECT_FALSE(slot_.read());
  EXPECT_FALSE(slot_.is_complete());
}

TEST_F(CrashSlotTest, HoldsFactsBeforeTheBacktrace) {
  write("main+0x1 (train)");
  slot_.stage = CrashSlot::facts_known;
  EXPECT_FALSE(slot_.is_complete());
  ASSERT_TRUE(slot_.read());
  EXPECT_EQ(slot_.read()->facts.address, 5u);
  EXPECT_EQ(slot_.read()->backtrace, "");
  slot_.stage = CrashSlot::complete;
  EXPECT_TRUE(slot_.is_complete());
  EXPECT_EQ(slot_.read()->backtrace, "main+0x1 (train)");
}

TEST_F(CrashSlotTest, WritesNamesAsTheirAuthorsDid) {
  write("_ZN6vendor4initEPKcRSt6vectorIiSaIiEE+0x1c (libvendor.so), _Zbad+0x2 (x), main+0x3 (t)");
  EXPECT_EQ(slot_.read()->backtrace,
            "vendor::init+0x1c (libvendor.so), _Zbad+0x2 (x), main+0x3 (t)");
}

TEST_F(CrashSlotTest, TrustsNothing) {
  write("");
  slot_.backtrace.fill('\x01');
  EXPECT_EQ(slot_.read()->backtrace, "");
  slot_.backtrace.fill('\xff');
  EXPECT_EQ(slot_.read()->backtrace, std::string(slot_.backtrace.size(), '?'));
  slot_.facts.thread.fill('x');
  EXPECT_THAT(slot_.read()->text(), HasSubstr("in thread xxxxxxxxxxxxxxxx"));
  slot_.facts.signal = 4711;
  EXPECT_FALSE(slot_.read());
}

}  // namespace
}  // namespace ranklink
