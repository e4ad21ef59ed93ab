#include "inspect/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "machine_tree.h"

namespace ranklink {
namespace {

TEST(ReadText, TakesWhiteSpaceOffTheEndOnly) {
  MachineTree tree;
  tree.file("a", "  two words \n\n");
  EXPECT_EQ(read_text(tree.root() + "a"), "  two words");
}

TEST(ReadText, IsEmptyForWhatCannotBeRead) {
  MachineTree tree;
  tree.file("blank", " \n");
  EXPECT_EQ(read_text(tree.root() + "missing"), "");
  EXPECT_EQ(read_text(tree.root()), "");  // a directory
  EXPECT_EQ(read_text(tree.root() + "blank"), "");
}

TEST(ReadText, EndsOnAFifoThatNobodyWrites) {
  MachineTree tree;
  ASSERT_EQ(::mkfifo((tree.root() + "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_text(tree.root() + "fifo"), "");
}

TEST(ReadText, StopsAtItsLimit) {
  MachineTree tree;
  tree.file("big", std::string(1 << 20, 'x'));
  EXPECT_EQ(read_text(tree.root() + "big").size(), 64u * 1024);
}

TEST(Field, FindsAKeyAtTheStartOfALine) {
  const std::string text = "Name:\tSeccomp:\nNoSeccomp:\t1\nSeccomp:\t 2 \nSeccomp_filters:\t3";
  EXPECT_EQ(field(text, "Seccomp:"), "2");
  EXPECT_EQ(field(text, "Seccomp_filters:"), "3");
  EXPECT_EQ(field(text, "CapEff:"), "");
  EXPECT_EQ(field("Groups:\t \nNStgid:\t7\n", "Groups:"), "");
}

TEST(NumberOr, ReadsTheNumberAtTheStart) {
  EXPECT_EQ(number_or("42 kB", 0), 42);
  EXPECT_EQ(number_or("max", -1), -1);
  EXPECT_EQ(number_or("", -1), -1);
  EXPECT_EQ(number_or("000001fffeffffff", 0ul, 16), 0x1fffefffffful);
  EXPECT_EQ(number_or("99999999999999999999999", 5), 5);
}

}  // namespace
}  // namespace ranklink
