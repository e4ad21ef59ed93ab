#include "base/printable.h"

#include <gtest/gtest.h>

namespace ranklink {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  EXPECT_EQ(printable("plain text, Grüße, 文字, \xf0\x9f\x98\x80"),
            "plain text, Grüße, 文字, \xf0\x9f\x98\x80");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, TakesOutWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b[1;31mred\x1b[0m"), "red");
  EXPECT_EQ(printable("a\tb\nc\rd\x7f\x1b"), "a bcd");
  EXPECT_EQ(printable("cut \x1b[1"), "cut ");
}

TEST(Printable, MarksWhatIsNoText) {
  EXPECT_EQ(printable("\xff\xc3"), "??");            // no lead byte, and one without its rest
  EXPECT_EQ(printable("\xc0\xaf\xe4\xb8"), "????");  // overlong, and cut short
}

}  // namespace
}  // namespace ranklink
