#include "route/routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "../base/expect_error.h"
#include "../collective/rank_threads.h"

namespace ranklink {
namespace {

constexpr Milliseconds kSafetyNet{20'000};
constexpr std::uint32_t kTag = 0x1234;

class RoutesTest : public testing::TestWithParam<RankThreads::Kinds> {};

std::string name_of_case(const testing::TestParamInfo<RankThreads::Kinds>& info) {
  return RankThreads::name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RoutesTest,
                         testing::Values(RankThreads::all_mapped, RankThreads::all_streams,
                                         RankThreads::mixed),
                         name_of_case);

template <typename Each>
void for_peers(Routes& routes, const Each& each) {
  for (int i = 1; i < routes.size(); ++i) each((routes.rank() + i) % routes.size());
}

// One number to a peer, or from it.
void put_number(Routes& routes, int to, std::uint32_t number) {
  routes.put(to, {reinterpret_cast<const std::byte*>(&number), sizeof number});
}
std::uint32_t take_number(Routes& routes, int from) {
  std::uint32_t number = 0;
  std::memcpy(&number, routes.wait(from, sizeof number).data(), sizeof number);
  routes.release(from);
  return number;
}

// All put a whole outbox to all at once and read only then: far more than sockets hold.
TEST_P(RoutesTest, PutToAllAtOnce) {
  for (const int size : {2, 3, 4}) {
    RankThreads ranks(size, GetParam());
    ranks.run_well([&](Routes& routes) {
      routes.begin(kTag, kSafetyNet);
      const std::size_t most = routes.max_message();
      for (int turn = 1; turn <= 5; ++turn) {
        const auto fill = [&](int rank, std::size_t bank) {
          return static_cast<std::byte>(rank * 64 + turn * 8 + static_cast<int>(bank));
        };
        for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
          std::byte* place = routes.reserve(most);
          std::fill(place, place + most, fill(routes.rank(), bank));
          for_peers(routes, [&](int peer) { routes.put(peer, {place, most}); });
        }
        for_peers(routes, [&](int peer) {
          for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
            const ByteView theirs = routes.wait(peer, most);
            EXPECT_TRUE(std::all_of(theirs.begin(), theirs.end(),
                                    [&](std::byte b) { return b == fill(peer, bank); }));
            routes.release(peer);
          }
        });
      }
      routes.end();
    });
  }
}

// As many as a peer keeps, of every size that travels in a slot, before anybody reads one.
TEST_P(RoutesTest, PutAWholeInbox) {
  RankThreads ranks(4, GetParam(), 0xffff'fff9);
  ranks.run_well([&](Routes& routes) {
    routes.begin(kTag, kSafetyNet);
    for (int turn = 0; turn < 50; ++turn) {
      Bytes data(SegmentLayout::kInline);
      for (std::uint32_t i = 0; i < SegmentLayout::kSlots; ++i) {
        std::fill(data.begin(), data.end(),
                  static_cast<std::byte>(routes.rank() * 16 + 1) ^ static_cast<std::byte>(i));
        for_peers(routes, [&](int peer) {
          routes.put(peer, ByteView(data).first(i * SegmentLayout::kInline / 15));
        });
      }
      for_peers(routes, [&](int peer) {
        for (std::uint32_t i = 0; i < SegmentLayout::kSlots; ++i) {
          const ByteView theirs = routes.wait(peer, i * SegmentLayout::kInline / 15);
          const auto expected = static_cast<std::byte>(peer * 16 + 1) ^ static_cast<std::byte>(i);
          EXPECT_TRUE(std::all_of(theirs.begin(), theirs.end(),
                                  [&](std::byte b) { return b == expected; }));
          routes.release(peer);
        }
      });
    }
    routes.end();
  });
}

TEST_P(RoutesTest, CountOnBeyondTheLargestNumber) {
  RankThreads ranks(3, GetParam(), 0xffff'fffe);
  ranks.run_well([&](Routes& routes) {
    routes.begin(kTag, kSafetyNet);
    for (std::uint32_t number = 0; number < 40; ++number) {
      for_peers(routes, [&](int peer) { put_number(routes, peer, number); });
      for_peers(routes, [&](int peer) { EXPECT_EQ(take_number(routes, peer), number); });
    }
    routes.end();
  });
}

TEST_P(RoutesTest, EndAWaitAtItsDeadline) {
  RankThreads ranks(2, GetParam());
  ranks.routes(0).begin(kTag, Milliseconds(5));
  expect_error(ErrorCode::op_timeout, [&] { ranks.routes(0).wait(1, 0); });
}

TEST_P(RoutesTest, EndAWaitWhenTheJobFails) {
  RankThreads ranks(3, GetParam());
  const auto thrown = ranks.run([&](Routes& routes) {
    if (routes.rank() == 2) {
      throw Error({.code = ErrorCode::rank_failed, .rank = 2, .cause = "out of luck"});
    }
    routes.begin(kTag, kSafetyNet);
    routes.wait(1 - routes.rank(), 0);
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->cause(), "out of luck");
  }
}

// Nobody reads, so that the inbox fills up.
TEST_P(RoutesTest, EndAPutAtItsDeadline) {
  RankThreads ranks(2, GetParam());
  Routes& routes = ranks.routes(0);
  routes.begin(kTag, Milliseconds(5));
  for (std::uint32_t i = 0; i < SegmentLayout::kSlots; ++i) put_number(routes, 1, i);
  EXPECT_FALSE(routes.has_room(1));
  expect_error(ErrorCode::op_timeout, [&] { put_number(routes, 1, 0); });
}

// A view stays as it is, and the oldest, until it is released.
TEST_P(RoutesTest, KeepMessagesUntilTheyAreReleased) {
  RankThreads ranks(2, GetParam());
  Routes& from = ranks.routes(0);
  Routes& to = ranks.routes(1);
  from.begin(kTag, kSafetyNet);
  to.begin(kTag, kSafetyNet);
  EXPECT_FALSE(to.look(0, 4));
  for (const std::uint32_t number : {3u, 4u, 5u}) put_number(from, 1, number);
  const ByteView first = to.wait(0, 4);
  EXPECT_EQ(to.wait(0, 4).data(), first.data());
  ASSERT_TRUE(to.look(0, 4));
  EXPECT_EQ(to.look(0, 4)->data(), first.data());
  for (const std::uint32_t number : {3u, 4u, 5u}) EXPECT_EQ(take_number(to, 0), number);
  EXPECT_FALSE(to.look(0, 4));
}

class PullTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_pull()) GTEST_SKIP() << "process_vm_readv is refused here";
  }

  static Bytes pattern(std::size_t size, int turn) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>(i * 31 + i / 4096 + static_cast<std::size_t>(turn));
    }
    return bytes;
  }
  static void pull(Routes& routes, Bytes& to) {
    routes.pull(0, routes.wait(0, Routes::kTold), to.data(), to.size());
  }

  RankThreads ranks_{2, RankThreads::all_mapped, 0xffff'fffe};
  Routes& owner_ = ranks_.routes(0);
  Routes& reader_ = ranks_.routes(1);
  CopyJob& job_ = *reinterpret_cast<CopyJob*>(ranks_.segment(1) + SegmentLayout(2).job(0));
};

TEST_F(PullTest, GivesAllBytes) {
  constexpr std::size_t kSizes[] = {
      1, 4096, (64 << 10) + 1, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, (1 << 20) + 7, 9 << 20};
  for (const std::size_t size : kSizes) {
    ranks_.run_well([&](Routes& routes) {
      routes.begin(kTag, kSafetyNet);
      for (int turn = 0; turn < 20; ++turn) {
        const Bytes expected = pattern(size, turn);
        if (routes.rank() == 0) {
          routes.tell(1, expected.data(), size);
          routes.await_delivered(1);
        } else {
          Bytes to(size + 1);
          routes.pull(0, routes.wait(0, Routes::kTold), to.data(), size);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.begin()));
          EXPECT_EQ(to[size], std::byte{0});
        }
      }
      routes.end();
    });
  }
}

// An owner that has nothing else to do copies the last piece that nobody has taken, each once.
TEST_F(PullTest, IsSharedByTheOwner) {
  constexpr std::size_t kPiece = 64 << 10;
  const Bytes data = pattern(3 * kPiece, 1);
  Bytes to(data.size());
  owner_.begin(kTag, kSafetyNet);
  reader_.begin(kTag, kSafetyNet);
  owner_.tell(1, data.data(), data.size());
  EXPECT_FALSE(owner_.delivered(1));  // the reader isn't there
  EXPECT_EQ(to.back(), std::byte{0});
  job_.address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(to.data()));
  job_.claims = std::uint64_t{1} << 32 | CopyJob::kFront;  // it copies the first piece
  EXPECT_FALSE(owner_.delivered(1));
  EXPECT_EQ(job_.pushed, 1u);
  EXPECT_TRUE(std::equal(to.begin() + 2 * kPiece, to.end(), data.begin() + 2 * kPiece));
  EXPECT_EQ(to[2 * kPiece - 1], std::byte{0});
  EXPECT_FALSE(owner_.delivered(1));
  EXPECT_EQ(job_.pushed, 2u);
  EXPECT_FALSE(owner_.delivered(1));
  EXPECT_EQ(CopyJob::back(job_.claims), 2u);
  EXPECT_TRUE(std::equal(to.begin() + kPiece, to.end(), data.begin() + kPiece));
  EXPECT_EQ(to[kPiece - 1], std::byte{0});
}

// A job of before, and one that has ended, are left alone.
TEST_F(PullTest, IsSharedOnlyWhileItLasts) {
  const Bytes data = pattern(1 << 20, 1);
  owner_.begin(kTag, kSafetyNet);
  owner_.tell(1, data.data(), data.size());
  for (const std::uint64_t claims : {std::uint64_t{0}, std::uint64_t{2} << 32,
                                     std::uint64_t{1} << 32 | CopyJob::kMost * CopyJob::kFront}) {
    job_.claims = claims;
    EXPECT_FALSE(owner_.delivered(1));
    EXPECT_EQ(job_.claims, claims);
    EXPECT_EQ(job_.pushed, 0u);
  }
}

TEST_F(PullTest, FailsWhereTheOwnersMemoryIsNot) {
  owner_.begin(kTag, kSafetyNet);
  reader_.begin(kTag, kSafetyNet);
  Bytes to(1 << 20);
  owner_.tell(1, nullptr, to.size());
  const std::string error = expect_error(ErrorCode::system_call, [&] { pull(reader_, to); });
  EXPECT_NE(error.find("process_vm_readv"), std::string::npos) << error;
  EXPECT_NE(error.find("EFAULT"), std::string::npos) << error;
  // Nobody copies there any more.
  const std::uint64_t claims = job_.claims;
  EXPECT_FALSE(owner_.delivered(1));
  EXPECT_EQ(job_.claims, claims);
}

// The reader must not take what its peer failed to write for written.
TEST_F(PullTest, FailsWhereTheReadersMemoryIsNot) {
  const Bytes data = pattern(1 << 20, 1);
  owner_.begin(kTag, kSafetyNet);
  owner_.tell(1, data.data(), data.size());
  job_.address = 0;
  job_.claims = std::uint64_t{1} << 32;
  const std::string error = expect_error(ErrorCode::system_call, [&] { owner_.delivered(1); });
  EXPECT_NE(error.find("process_vm_writev"), std::string::npos) << error;
  EXPECT_NE(job_.pushed, CopyJob::back(job_.claims));
}

TEST_F(PullTest, EndsAtItsDeadlineWhereNobodyPulls) {
  owner_.begin(kTag, Milliseconds(5));
  const Bytes data = pattern(1 << 20, 1);
  owner_.tell(1, data.data(), data.size());
  expect_error(ErrorCode::op_timeout, [&] { owner_.await_delivered(1); });
}

// An owner that has begun to write a piece, and never ends.
TEST_F(PullTest, EndsAtItsDeadlineWhereTheOwnerDoesNotEnd) {
  owner_.begin(kTag, kSafetyNet);
  reader_.begin(kTag, Milliseconds(5));
  const Bytes data = pattern(16 << 20, 1);
  Bytes to(data.size());
  owner_.tell(1, data.data(), data.size());
  std::thread claim([&] {
    std::atomic_ref claims(job_.claims);
    std::uint64_t seen = 0;
    while (CopyJob::number(seen) != 1) seen = claims.load();
    claims.fetch_add(1);
  });
  try {
    pull(reader_, to);
    EXPECT_EQ(to, data);  // it was quicker
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::op_timeout) << error.what();
  }
  claim.join();
}

TEST_P(RoutesTest, CountGrants) {
  RankThreads ranks(2, GetParam(), 0xffff'ffff);
  Routes& sender = ranks.routes(0);
  Routes& receiver = ranks.routes(1);
  sender.begin(kTag, kSafetyNet);
  receiver.begin(kTag, kSafetyNet);
  EXPECT_FALSE(sender.granted(1));
  receiver.grant(0);
  receiver.grant(0);
  for (int i = 0; i < 2; ++i) {
    sender.wait_for_any(1, [&] { return sender.granted(1); });
    sender.use_grant(1);
  }
  EXPECT_FALSE(sender.granted(1));
  EXPECT_FALSE(receiver.granted(0));
  receiver.grant(0);
  sender.wait_for_any(1, [&] { return sender.granted(1); });
}

// What belongs to another call, or is of another size, is not taken for what is waited for.
TEST_P(RoutesTest, TakeNoOtherMessageForTheirs) {
  for (const std::size_t sent : {std::size_t{0}, std::size_t{8}, std::size_t{300}}) {
    for (const std::size_t expected : {std::size_t{8}, std::size_t{300}, std::size_t{100'000}}) {
      RankThreads ranks(2, GetParam());
      Routes& from = ranks.routes(0);
      Routes& to = ranks.routes(1);
      to.begin(kTag, kSafetyNet);
      from.begin(sent == expected ? kTag + 1 : kTag, kSafetyNet);
      // Also where it stands at the end of the outbox.
      const std::size_t most = from.max_message();
      for (std::size_t bank = 1; bank < SegmentLayout::kBanks; ++bank) from.reserve(most);
      from.reserve(most - 512);
      Bytes data(sent);
      const ByteView message =
          sent <= SegmentLayout::kInline ? ByteView(data) : ByteView(from.reserve(sent), sent);
      from.put(1, message);
      expect_error(ErrorCode::call_mismatch, [&] { to.wait(0, expected); });
      expect_error(ErrorCode::call_mismatch, [&] { to.look(0, expected); });
    }
  }
}

// The space of a message that some peer hasn't read is not given away.
TEST(Routes, KeepABankUntilAllHaveReadIt) {
  RankThreads ranks(3, RankThreads::all_mapped, 0xffff'fffd);
  Routes& routes = ranks.routes(0);
  const std::size_t most = routes.max_message();
  for (int rank = 0; rank < 3; ++rank) ranks.routes(rank).begin(kTag, Milliseconds(5));
  for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
    std::byte* place = routes.try_reserve(most);
    ASSERT_NE(place, nullptr);
    routes.put(1, {place, most});
    routes.put(2, {place, most});
  }
  EXPECT_EQ(routes.try_reserve(64), nullptr);
  expect_error(ErrorCode::op_timeout, [&] { routes.reserve(64); });
  for (std::size_t bank = 0; bank < SegmentLayout::kBanks; ++bank) {
    ranks.routes(1).wait(0, most);
    ranks.routes(1).release(0);
  }
  EXPECT_EQ(routes.try_reserve(64), nullptr);
  ranks.routes(2).wait(0, most);
  ranks.routes(2).release(0);
  std::byte* place = routes.try_reserve(most);
  ASSERT_NE(place, nullptr);
  routes.put(1, {place, most});
  EXPECT_EQ(routes.try_reserve(64), nullptr);  // rank 2 still reads the next
}

// Nothing that a peer wrote is used unchecked.
TEST(Routes, RefuseAPlaceOutsideOfTheOutbox) {
  for (const std::uint32_t beyond : {1u, 64u, 0x7fff'ffffu}) {
    RankThreads ranks(2, RankThreads::all_mapped);
    const SegmentLayout layout(2);
    MessageHead head{.sequence = 1, .tag = kTag, .size = 1000, .place = 0};
    head.place = static_cast<std::uint32_t>(layout.outbox_bytes() - head.size) + beyond;
    std::memcpy(ranks.segment(0) + layout.slot(1, 1), &head, sizeof head);
    ranks.routes(0).begin(kTag, kSafetyNet);
    expect_error(ErrorCode::protocol_violation, [&] { ranks.routes(0).wait(1, 1000); });
  }
}

TEST(Routes, TellThatAStreamHasClosed) {
  RankThreads ranks(2, RankThreads::all_streams);
  ranks.end(1);
  ranks.routes(0).begin(kTag, kSafetyNet);
  expect_error(ErrorCode::connection_lost, [&] { ranks.routes(0).wait(1, 0); });
}

// What came before the end of a stream is still there.
TEST(Routes, TakeWhatCameBeforeAStreamClosed) {
  RankThreads ranks(2, RankThreads::all_streams);
  ranks.routes(0).begin(kTag, kSafetyNet);
  ranks.routes(1).begin(kTag, kSafetyNet);
  put_number(ranks.routes(1), 0, 7);
  ranks.end(1);
  EXPECT_EQ(take_number(ranks.routes(0), 1), 7u);
  ranks.routes(0).end();
  expect_error(ErrorCode::connection_lost, [&] { ranks.routes(0).wait(1, 0); });
}

}  // namespace
}  // namespace ranklink
