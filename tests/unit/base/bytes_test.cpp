#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expect_error.h"

namespace ranklink {
namespace {

template <typename Read>
void expect_refused(const Writer& message, Read read) {
  expect_error(ErrorCode::protocol_violation, [&] {
    Reader from{message.bytes()};
    read(from);
  });
}

TEST(Bytes, AreLittleEndian) {
  Writer to;
  to.put(std::uint32_t{0x01020304});
  to.put(std::int16_t{-2});
  EXPECT_EQ(to.bytes(), (Bytes{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1},
                               std::byte{0xfe}, std::byte{0xff}}));
}

TEST(Bytes, ComeBackAsTheyWent) {
  Writer to;
  to.put(std::int32_t{-5});
  to.put(std::numeric_limits<std::int64_t>::min());
  to.put(std::numeric_limits<std::uint64_t>::max());
  to.put(true);
  to.put(ErrorCode::no_route);
  to.put(-0.0);
  to.text(std::string_view("a\0b", 3));
  to.blob({});
  Reader from{to.bytes()};
  EXPECT_EQ(from.get<std::int32_t>(), -5);
  EXPECT_EQ(from.get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(from.get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(from.get<bool>());
  EXPECT_EQ(from.get<ErrorCode>(), ErrorCode::no_route);
  EXPECT_TRUE(std::signbit(from.get_double()));
  EXPECT_EQ(from.text(), std::string("a\0b", 3));
  EXPECT_TRUE(from.blob(10).empty());
  EXPECT_TRUE(from.empty());
  from.end();
}

TEST(Reader, RefusesAMessageThatEndsEarly) {
  Writer to;
  to.put(std::uint8_t{1});
  expect_refused(to, [](Reader& from) { from.get<std::uint16_t>(); });
  expect_refused(to, [](Reader& from) { from.raw(2); });
  expect_refused(to, [](Reader& from) { from.raw(std::numeric_limits<std::size_t>::max()); });
  expect_refused(to, [](Reader& from) { from.get_double(); });
}

TEST(Reader, RefusesALengthBeyondTheMessage) {
  Writer to;
  to.put(std::uint32_t{5});
  to.raw(view_of("four"));
  expect_refused(to, [](Reader& from) { from.text(); });
}

TEST(Reader, RefusesAFieldBeyondItsLimit) {
  Writer to;
  to.text("12345");
  expect_refused(to, [](Reader& from) { from.text(4); });
  Reader from{to.bytes()};
  EXPECT_EQ(from.text(5), "12345");
}

TEST(Reader, RefusesACountThatTheMessageCannotHold) {
  Writer to;
  to.put(std::uint32_t{3});
  to.raw(view_of("eight by"));
  expect_refused(to, [](Reader& from) { from.count(3); });
  Reader from{to.bytes()};
  EXPECT_EQ(from.count(2), 3u);
}

TEST(Reader, RefusesBytesBehindTheEnd) {
  Writer to;
  to.put(std::uint16_t{3});
  expect_refused(to, [](Reader& from) {
    from.get<std::uint8_t>();
    from.end();
  });
}

}  // namespace
}  // namespace ranklink
