#include "group/joining.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "../base/expect_error.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

class FindPlaceTest : public testing::Test {
 protected:
  FindPlaceTest() { clear(); }
  ~FindPlaceTest() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
  }
};

TEST_F(FindPlaceTest, ReadsTheEnvironment) {
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "8", 1);
  const Place place = find_place({});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 8);
}

TEST_F(FindPlaceTest, PrefersTheProgram) {
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "8", 1);
  Options options;
  options.rank = 1;
  options.size = 2;
  const Place place = find_place(options);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
}

TEST_F(FindPlaceTest, SaysWhatIsMissing) {
  EXPECT_THAT(expect_error(ErrorCode::bad_argument, [] { find_place({}); }),
              HasSubstr("RANK isn't set"));
  ::setenv("RANK", "0", 1);
  EXPECT_THAT(expect_error(ErrorCode::bad_argument, [] { find_place({}); }),
              HasSubstr("WORLD_SIZE isn't set"));
  for (const char* text : {"", "two", "2x", " 2", "99999999999"}) {
    ::setenv("WORLD_SIZE", text, 1);
    EXPECT_THAT(expect_error(ErrorCode::bad_argument, [] { find_place({}); }),
                HasSubstr("is not a number"));
  }
}

TEST_F(FindPlaceTest, RefusesPlacesThatAreNotThere) {
  const auto place = [](int rank, int size) {
    Options options;
    options.rank = rank;
    options.size = size;
    find_place(options);
  };
  for (const int size : {0, -3}) {
    expect_error(ErrorCode::size_mismatch, [&] { place(0, size); });
  }
  for (const int rank : {-1, 4}) {
    expect_error(ErrorCode::rank_out_of_range, [&] { place(rank, 4); });
  }
}

TEST_F(FindPlaceTest, NamesAllThatCouldSayWhereRanksMeet) {
  const std::string what = expect_error(ErrorCode::no_rendezvous, [] {
    find_rendezvous({}, Settings(), {0, 2}, Deadline::after(Milliseconds(10)));
  });
  EXPECT_THAT(what, HasSubstr("RANKLINK_RENDEZVOUS"));
  EXPECT_THAT(what, HasSubstr("ranklink run"));
}

TEST_F(FindPlaceTest, NeedsASecretWhereAnybodyCouldCome) {
  Settings settings;
  settings.set("RANKLINK_RENDEZVOUS", "tcp://127.0.0.1:29400", Origin::environment);
  EXPECT_THAT(
      expect_error(ErrorCode::setting_invalid,
                   [&] {
                     find_rendezvous({}, settings, {1, 2}, Deadline::after(Milliseconds(10)));
                   }),
      HasSubstr("RANKLINK_SECRET"));
}

TEST_F(FindPlaceTest, RefusesTwoMeetingPoints) {
  struct Nothing : Store {
    void set(const std::string&, std::span<const std::byte>) override {}
    std::vector<std::byte> get(const std::string&, std::chrono::milliseconds) override {
      return {};
    }
  };
  Options options;
  options.unique_id.emplace();
  options.store = std::make_shared<Nothing>();
  expect_error(ErrorCode::bad_argument, [&] {
    find_rendezvous(options, Settings(), {0, 2}, Deadline::after(Milliseconds(10)));
  });
}

TEST_F(FindPlaceTest, RefusesAUniqueIdThatIsNone) {
  Options options;
  options.unique_id.emplace();
  expect_error(ErrorCode::protocol_violation, [&] {
    find_rendezvous(options, Settings(), {0, 2}, Deadline::after(Milliseconds(10)));
  });
}

}  // namespace
}  // namespace ranklink
