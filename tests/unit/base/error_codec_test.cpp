#include "base/error_codec.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace ranklink {
namespace {

Error sample() {
  return Error({.code = ErrorCode::rank_killed,
                .rank = 3,
                .peer = -1,
                .step = "all_reduce",
                .cause = "signal 9",
                .remedy = "look at its last lines",
                .context = "rank 0 was waiting"});
}

TEST(ErrorCodec, BringsEveryPartAcross) {
  Writer to;
  encode(sample(), to);
  Reader from{to.bytes()};
  const Error out = decode_error(from);
  from.end();
  EXPECT_EQ(out.code(), ErrorCode::rank_killed);
  EXPECT_EQ(out.rank(), 3);
  EXPECT_EQ(out.peer(), -1);
  EXPECT_STREQ(out.what(), sample().what());
}

TEST(ErrorCodec, CutsLongTexts) {
  const Error in({.code = ErrorCode::rank_failed,
                  .cause = std::string(100'000, 'c'),
                  .remedy = std::string(20, 'r')});
  Writer whole;
  encode(in, whole);
  Reader from_whole{whole.bytes()};
  EXPECT_EQ(decode_error(from_whole).cause(), std::string(16'361, 'c') + "...");
  Writer cut;
  encode(in, cut, 20);
  Reader from_cut{cut.bytes()};
  const Error out = decode_error(from_cut);
  EXPECT_EQ(out.remedy(), "r...");
  EXPECT_EQ(out.cause(), std::string(13, 'c') + "...");  // what the remedy leaves of 20
}

TEST(ErrorCodec, RefusesEveryTruncationAndUnknownCodes) {
  Writer to;
  encode(sample(), to);
  for (std::size_t size = 0; size < to.bytes().size(); ++size) {
    expect_error(ErrorCode::protocol_violation, [&] {
      Reader from{ByteView(to.bytes()).first(size)};
      decode_error(from);
    });
  }
  Writer unknown;
  encode(Error({.code = static_cast<ErrorCode>(9999)}), unknown);
  expect_error(ErrorCode::protocol_violation, [&] {
    Reader from{unknown.bytes()};
    decode_error(from);
  });
}

}  // namespace
}  // namespace ranklink
