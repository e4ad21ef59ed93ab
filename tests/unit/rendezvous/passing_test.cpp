#include "rendezvous/passing.h"

#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "base/socket.h"

namespace ranklink {
namespace {

struct Sent {
  int to = 0;
  std::vector<Passed::Item> items;
  std::vector<SharedFd> fds;
};

class PassingTest : public testing::Test {
 protected:
  void post(int from, int to, int count, std::uint32_t first_tag = 0) {
    for (int i = 0; i < count; ++i) {
      passing_.post(from, {first_tag + static_cast<std::uint32_t>(i), {to}}, fd_);
    }
  }
  const Sent& last() const { return sent_.back(); }

  std::vector<Sent> sent_;
  SharedFd fd_ = std::make_shared<const Fd>(::dup(0));
  Passing passing_{16, [this](int to, const Bytes& payload, std::vector<SharedFd> fds) {
                     sent_.push_back({to, Passed::decode(payload).items, std::move(fds)});
                   }};
};

TEST_F(PassingTest, GivesOneToEachPeer) {
  passing_.post(2, {7, {0, 5}}, fd_);
  ASSERT_EQ(sent_.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sent_[i].to, i == 0 ? 0 : 5);
    ASSERT_EQ(sent_[i].items.size(), 1u);
    EXPECT_EQ(sent_[i].items[0].from, 2);
    EXPECT_EQ(sent_[i].items[0].tag, 7u);
    EXPECT_FALSE(sent_[i].items[0].lost);
    EXPECT_EQ(sent_[i].fds, std::vector<SharedFd>{fd_});
  }
}

TEST_F(PassingTest, TellsOfADescriptorThatItsOwnerCouldNotGive) {
  passing_.post(2, {7, {0}}, nullptr);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(last().items[0].withheld);
  EXPECT_TRUE(last().fds.empty());
}

TEST_F(PassingTest, SendsTheNextBatchWhenTheFirstIsAcknowledged) {
  post(1, 0, 100);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(last().items.size(), 1u);
  std::size_t got = 1;
  std::vector<std::size_t> batches;
  while (got < 100) {
    const std::size_t before = sent_.size();
    passing_.acknowledge(0, static_cast<std::uint32_t>(last().items.size()));
    ASSERT_EQ(sent_.size(), before + 1);
    EXPECT_EQ(last().fds.size(), last().items.size());
    for (const Passed::Item& item : last().items) EXPECT_EQ(item.tag, got++);
    batches.push_back(last().items.size());
  }
  EXPECT_EQ(batches, (std::vector<std::size_t>{32, 32, 32, 3}));
  const std::size_t before = sent_.size();
  passing_.acknowledge(0, 3);
  EXPECT_EQ(sent_.size(), before);
}

TEST_F(PassingTest, SendsAgainWhatWasDropped) {
  post(1, 0, 41);
  passing_.acknowledge(0, 1);
  ASSERT_EQ(last().items.size(), 32u);
  passing_.acknowledge(0, 5);  // of tags 1..32 it took 1..5
  ASSERT_EQ(last().items.size(), 5u);
  EXPECT_EQ(last().items.front().tag, 6u);
  EXPECT_EQ(last().items.back().tag, 10u);
  EXPECT_EQ(last().fds.size(), 5u);
  passing_.acknowledge(0, 5);
  EXPECT_EQ(last().items.front().tag, 11u);
  EXPECT_EQ(last().items.size(), 5u);
}

TEST_F(PassingTest, GivesUpOnOneThatTheReceiverCanNotTakeAlone) {
  post(1, 0, 4);
  passing_.acknowledge(0, 1);
  ASSERT_EQ(last().items.size(), 3u);
  passing_.acknowledge(0, 0);
  ASSERT_EQ(last().items.size(), 1u);
  EXPECT_EQ(last().items[0].tag, 1u);
  EXPECT_FALSE(last().items[0].lost);
  passing_.acknowledge(0, 0);
  ASSERT_EQ(last().items.size(), 1u);
  EXPECT_EQ(last().items[0].tag, 1u);
  EXPECT_TRUE(last().items[0].lost);
  EXPECT_TRUE(last().fds.empty());
  passing_.acknowledge(0, 1);
  ASSERT_EQ(last().items.size(), 1u);
  EXPECT_EQ(last().items[0].tag, 2u);
  EXPECT_FALSE(last().items[0].lost);
}

TEST_F(PassingTest, KeepsAWindowOverAllReceivers) {
  for (int to = 1; to < 16; ++to) post(0, to, 33);
  ASSERT_EQ(sent_.size(), 15u);  // one each; the rest waits for the first acknowledgement
  std::size_t in_flight = 15;
  std::size_t most = 0;
  std::vector<std::size_t> received(16, 0);
  for (std::size_t next = 0; next < sent_.size(); ++next) {
    const int to = sent_[next].to;
    const std::size_t count = sent_[next].items.size();
    received[static_cast<std::size_t>(to)] += count;
    const std::size_t before = sent_.size();
    in_flight -= count;
    passing_.acknowledge(to, static_cast<std::uint32_t>(count));
    for (std::size_t i = before; i < sent_.size(); ++i) in_flight += sent_[i].items.size();
    most = std::max(most, in_flight);
  }
  EXPECT_GE(most, 256u);
  EXPECT_LT(most, 256u + 32u);
  EXPECT_EQ(in_flight, 0u);
  for (std::size_t to = 1; to < 16; ++to) EXPECT_EQ(received[to], 33u);
}

TEST_F(PassingTest, ClosesWhatHasArrived) {
  post(1, 0, 1);
  sent_.clear();
  EXPECT_GT(fd_.use_count(), 1);
  passing_.acknowledge(0, 1);
  EXPECT_EQ(fd_.use_count(), 1);
}

TEST_F(PassingTest, RefusesMoreAcknowledgementsThanWereSent) {
  expect_error(ErrorCode::protocol_violation, [&] { passing_.acknowledge(0, 1); });
  post(1, 0, 1);
  expect_error(ErrorCode::protocol_violation, [&] { passing_.acknowledge(0, 2); });
  expect_error(ErrorCode::protocol_violation, [&] { passing_.acknowledge(3, 0xffffffff); });
}

TEST_F(PassingTest, RefusesPeersThatAreNotThere) {
  for (const std::int32_t peer : {-1, 16, 2}) {
    expect_error(ErrorCode::protocol_violation, [&] { passing_.post(2, {7, {peer}}, fd_); });
    expect_error(ErrorCode::protocol_violation, [&] { passing_.broker(2, {7, {peer}}); });
  }
  EXPECT_TRUE(sent_.empty());
}

TEST_F(PassingTest, GivesAStreamToBothWhenBothHaveAsked) {
  passing_.broker(1, {7, {4}});
  passing_.broker(1, {7, {4}});  // asking again pairs nobody with himself
  passing_.broker(4, {8, {1}});  // another tag is another stream
  EXPECT_TRUE(sent_.empty());
  passing_.broker(4, {7, {1}});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].to, 4);
  EXPECT_EQ(sent_[0].items.at(0).from, 1);
  EXPECT_EQ(sent_[1].to, 1);
  EXPECT_EQ(sent_[1].items.at(0).from, 4);
  const Bytes word(8, std::byte{0x5a});
  std::size_t count = 0;
  ASSERT_EQ(send_some(sent_[0].fds.at(0)->get(), word, {}, count), Io::some);
  Bytes into(8);
  std::vector<Fd> fds;
  bool dropped = false;
  ASSERT_EQ(receive_some(sent_[1].fds.at(0)->get(), into, fds, count, dropped), Io::some);
  EXPECT_EQ(into, word);
}

}  // namespace
}  // namespace ranklink
