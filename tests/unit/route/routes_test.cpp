#include "route/routes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "../base/expect_error.h"
#include "../collective/rank_threads.h"

namespace ranklink {
namespace {

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

class RoutesTest : public testing::TestWithParam<RankThreads::Kinds> {};

std::string name_of_case(const testing::TestParamInfo<RankThreads::Kinds>& info) {
  return RankThreads::name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RoutesTest,
                         testing::Values(RankThreads::all_mapped, RankThreads::all_streams,
                                         RankThreads::mixed),
                         name_of_case);

// All put a whole inbox to all at once and read only then: far more than sockets hold.
TEST_P(RoutesTest, PutToAllAtOnce) {
  for (const int size : {2, 3, 4}) {
    RankThreads ranks(size, GetParam());
    ranks.run_well([&](Routes& routes) {
      const std::size_t chunk = routes.layout().chunk();
      for (std::uint32_t turn = 1; turn <= 5; ++turn) {
        Bytes data(chunk);
        for (const Channel channel : {Channel::scatter, Channel::gather}) {
          for (int peer = 0; peer < size; ++peer) {
            if (peer == routes.rank()) continue;
            const auto fill = static_cast<std::byte>(routes.rank() * 16 + static_cast<int>(turn));
            std::fill(data.begin(), data.end(), fill);
            routes.put(peer, channel, data, safety_net());
            routes.signal(peer, channel, turn, safety_net());
          }
        }
        for (int peer = 0; peer < size; ++peer) {
          if (peer == routes.rank()) continue;
          for (const Channel channel : {Channel::scatter, Channel::gather}) {
            routes.wait(peer, channel, turn, safety_net());
            const auto fill = static_cast<std::byte>(peer * 16 + static_cast<int>(turn));
            const std::byte* inbox = routes.inbox(peer, channel);
            EXPECT_TRUE(std::all_of(inbox, inbox + chunk, [&](std::byte b) { return b == fill; }));
          }
        }
        for (int peer = 0; peer < size; ++peer) {  // all have read
          if (peer != routes.rank()) routes.signal(peer, Channel::barrier, turn, safety_net());
        }
        for (int peer = 0; peer < size; ++peer) {
          if (peer != routes.rank()) routes.wait(peer, Channel::barrier, turn, safety_net());
        }
      }
    });
  }
}

TEST_P(RoutesTest, CountOnBeyondTheLargestNumber) {
  RankThreads ranks(3, GetParam(), 0xffff'fffe);
  ranks.run_well([&](Routes& routes) {
    for (const std::uint32_t sequence : {0xffff'ffffu, 0u, 1u, 2u}) {
      for (int i = 1; i < 3; ++i) {
        routes.signal((routes.rank() + i) % 3, Channel::scatter, sequence, safety_net());
      }
      for (int i = 1; i < 3; ++i) {
        routes.wait((routes.rank() + i) % 3, Channel::scatter, sequence, safety_net());
      }
    }
  });
}

TEST_P(RoutesTest, EndAWaitAtItsDeadline) {
  RankThreads ranks(2, GetParam());
  expect_error(ErrorCode::op_timeout, [&] {
    ranks.routes(0).wait(1, Channel::barrier, 1, Deadline::after(Milliseconds(5)));
  });
}

TEST_P(RoutesTest, EndAWaitWhenTheJobFails) {
  RankThreads ranks(3, GetParam());
  const auto thrown = ranks.run([&](Routes& routes) {
    if (routes.rank() == 2) {
      throw Error({.code = ErrorCode::rank_failed, .rank = 2, .cause = "out of luck"});
    }
    routes.wait(1 - routes.rank(), Channel::barrier, 1, safety_net());
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->cause(), "out of luck");
  }
}

TEST(Routes, TakeALaterSignalForAnEarlierOne) {
  RankThreads ranks(2, RankThreads::all_mapped);
  ranks.routes(1).signal(0, Channel::barrier, 5, safety_net());
  for (const std::uint32_t value : {3u, 4u, 5u}) {
    ranks.routes(0).wait(1, Channel::barrier, value, safety_net());
  }
  expect_error(ErrorCode::op_timeout, [&] {
    ranks.routes(0).wait(1, Channel::barrier, 6, Deadline::after(Milliseconds(1)));
  });
}

// Nobody reads, so that the socket fills up.
TEST(Routes, EndAPutAtItsDeadline) {
  RankThreads ranks(2, RankThreads::all_streams);
  const Bytes data(ranks.routes(0).layout().chunk());
  expect_error(ErrorCode::op_timeout, [&] {
    for (int i = 0; i < 1000; ++i) {
      ranks.routes(0).put(1, Channel::scatter, data, Deadline::after(Milliseconds(5)));
    }
  });
}

TEST(Routes, TellThatAStreamHasClosed) {
  RankThreads ranks(2, RankThreads::all_streams);
  ranks.end(1);
  expect_error(ErrorCode::connection_lost,
               [&] { ranks.routes(0).wait(1, Channel::barrier, 1, safety_net()); });
}

}  // namespace
}  // namespace ranklink
