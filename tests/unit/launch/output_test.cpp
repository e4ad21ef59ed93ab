#include "launch/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <vector>

namespace ranklink {
namespace {

using Lines = std::vector<std::string>;

Lines split(LineSplitter& splitter, const std::vector<std::string_view>& pieces) {
  Lines lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string_view piece : pieces) splitter.feed(piece, sink);
  splitter.finish(sink);
  return lines;
}

TEST(LineSplitter, PutsPiecesTogether) {
  LineSplitter splitter;
  EXPECT_EQ(split(splitter, {"a", "b\nc\n", "\n", "d", "", "e"}), (Lines{"ab", "c", "", "de"}));
}

TEST(LineSplitter, FinishesOnce) {
  LineSplitter splitter;
  EXPECT_EQ(split(splitter, {"a"}), Lines{"a"});
  EXPECT_EQ(split(splitter, {}), Lines{});
}

TEST(LineSplitter, CutsWhatIsTooLong) {
  LineSplitter splitter(4);
  EXPECT_EQ(split(splitter, {"123456789\nx\n"}), (Lines{"1234", "5678", "9", "x"}));
}

TEST(LineSplitter, ALineOfExactlyTheLimitIsOneLine) {
  LineSplitter splitter(4);
  EXPECT_EQ(split(splitter, {"1234\nx\n"}), (Lines{"1234", "x"}));
  EXPECT_EQ(split(splitter, {"12", "34", "\n", "\nx"}), (Lines{"1234", "", "x"}));
}

TEST(Tail, KeepsTheLastLines) {
  Tail tail;
  for (int i = 0; i < 30; ++i) tail.add("line " + std::to_string(i));
  EXPECT_TRUE(tail.text().starts_with("line 10 | line 11"));
  EXPECT_TRUE(tail.text().ends_with("line 29"));
}

TEST(Tail, IsPrintable) {
  Tail tail;
  tail.add("\x1b[31mred\x1b[0m\tcaf\xc3\xa9 \xff\x01");
  tail.add("   ");
  EXPECT_EQ(tail.text(), "red caf\xc3\xa9 ?");
}

TEST(Tail, CutsAtCharacters) {
  Tail tail;
  tail.add("\xc3\xa9\xc3\xa9\xc3\xa9");
  EXPECT_EQ(tail.text(3), "...\xc3\xa9");
}

TEST(Outlet, WritesToFiles) {
  const Fd file(::memfd_create("outlet", MFD_CLOEXEC));
  Outlet outlet(file.get());
  outlet.write_line("[0] ", "hello");
  outlet.write_line("[1] ", "");
  outlet.flush();
  EXPECT_EQ(outlet.queued(), 0U);
  char text[64]{};
  ASSERT_GT(::pread(file.get(), text, sizeof text - 1, 0), 0);
  EXPECT_STREQ(text, "[0] hello\n[1] \n");
}

TEST(Outlet, DoesNotBlockOnAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]), writer(ends[1]);
  Outlet outlet(writer.get());
  const std::string line(1000, 'x');
  while (!outlet.full()) {
    outlet.write_line("", line);
    outlet.flush();
  }
  // The descriptor that was handed in keeps its mode: a shell may share it.
  EXPECT_EQ(::fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0);
  std::vector<char> buffer(1 << 16);
  std::size_t got = 0;
  while (outlet.queued() > 0) {
    const ssize_t n = ::read(reader.get(), buffer.data(), buffer.size());
    ASSERT_GT(n, 0);
    got += static_cast<std::size_t>(n);
    outlet.flush();
  }
  EXPECT_GT(got, 1024U * 1024);
}

TEST(Outlet, NoticesThatItsReaderIsGone) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd reader(ends[0]);
  const Fd writer(ends[1]);
  Outlet outlet(writer.get());
  reader.reset();
  outlet.write_line("", "x");
  outlet.flush();
  EXPECT_EQ(outlet.broken(), EPIPE);
  EXPECT_EQ(outlet.queued(), 0U);
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(Outlet, TellsWhetherTwoDescriptorsAreOneFile) {
  const Fd a(::memfd_create("a", MFD_CLOEXEC)), b(::memfd_create("b", MFD_CLOEXEC));
  const Fd copy(::dup(a.get()));
  EXPECT_TRUE(same_file(a.get(), copy.get()));
  EXPECT_FALSE(same_file(a.get(), b.get()));
}

}  // namespace
}  // namespace ranklink
