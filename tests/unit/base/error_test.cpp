#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace ranklink {
namespace {

TEST(Error, SaysWhoWhereWhyAndWhatToDo) {
  const Error error({.code = ErrorCode::duplicate_rank,
                     .rank = 1,
                     .peer = 2,
                     .step = "join",
                     .cause = "claimed twice",
                     .remedy = "number the ranks anew",
                     .context = "rank 0 was waiting"});
  EXPECT_STREQ(error.what(),
               "RL1206 duplicate_rank: rank 1, peer 2, step join: claimed twice. "
               "Remedy: number the ranks anew (rank 0 was waiting)");
}

TEST(Error, LeavesOutWhatItDoesNotKnow) {
  EXPECT_STREQ(Error({.code = ErrorCode::op_timeout, .cause = "late"}).what(),
               "RL1401 op_timeout: late");
  EXPECT_STREQ(Error({.code = ErrorCode::op_timeout, .rank = 0, .cause = "late"}).what(),
               "RL1401 op_timeout: rank 0: late");
}

TEST(Error, FallsBackOnTheMeaningOfItsCode) {
  EXPECT_STREQ(Error({.code = ErrorCode::no_route}).what(),
               "RL1302 no_route: no way leads from one rank to another");
}

TEST(Error, OutlivesTheOneItWasCopiedFrom) {
  auto first = std::make_unique<Error>(Error::Parts{.code = ErrorCode::no_route, .cause = "x"});
  const Error copy = *first;
  first.reset();
  EXPECT_EQ(copy.cause(), "x");
}

TEST(ErrorCode, HasOneNumberAndOneNameEach) {
  std::set<int> numbers;
  std::set<std::string> names;
  int rows = 0;
#define RANKLINK_ERROR(number, name, meaning)      \
  numbers.insert(number);                          \
  names.insert(#name);                             \
  EXPECT_EQ(name_of(ErrorCode::name), #name);      \
  EXPECT_EQ(meaning_of(ErrorCode::name), meaning); \
  ++rows;
#include "ranklink/error_codes.def"
#undef RANKLINK_ERROR
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(rows));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(rows));
  EXPECT_EQ(to_string(ErrorCode::secret_mismatch), "RL1203");
}

TEST(ErrorCode, OfAnotherVersionHasNoName) {
  EXPECT_EQ(name_of(static_cast<ErrorCode>(9999)), "");
  EXPECT_EQ(meaning_of(static_cast<ErrorCode>(9999)), "");
}

TEST(SystemError, GivesTheSystemsOwnWords) {
  const Error error = system_error("open /x", EACCES, "look");
  EXPECT_EQ(error.code(), ErrorCode::system_call);
  EXPECT_EQ(error.cause(), "open /x: EACCES (Permission denied)");
  EXPECT_EQ(error.remedy(), "look");
}

TEST(SystemError, HasCodesOfItsOwnForShortages) {
  for (const int number : {EMFILE, ENFILE}) {
    EXPECT_EQ(system_error("open", number).code(), ErrorCode::descriptors_short);
    EXPECT_NE(system_error("open", number).remedy().find("ulimit -n"), std::string::npos);
    EXPECT_EQ(system_error("open", number, "mine").remedy(), "mine");
  }
  EXPECT_EQ(system_error("mmap", ENOMEM).code(), ErrorCode::memory_short);
}

TEST(ErrnoText, CopesWithNumbersThatHaveNoName) {
  EXPECT_TRUE(errno_text(4095).starts_with("errno 4095 ("));
}

TEST(With, ChangesACopy) {
  const Error first({.code = ErrorCode::no_route, .cause = "x"});
  const Error second = with(first, [](Error::Parts& parts) { parts.rank = 3; });
  EXPECT_EQ(second.rank(), 3);
  EXPECT_EQ(second.cause(), "x");
  EXPECT_STREQ(second.what(), "RL1302 no_route: rank 3: x");
  EXPECT_EQ(first.rank(), -1);
}

}  // namespace
}  // namespace ranklink
