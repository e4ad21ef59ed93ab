// What a call must be, and how calls are told apart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "../base/expect_error.h"
#include "group/group_impl.h"
#include "group/shared_buffer.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;
std::array<std::byte, 64> memory;

void refused(const Call& call, const std::string& text, int rank = 0) {
  const std::string message =
      expect_error(ErrorCode::bad_argument, [&] { check_call(call, rank, kSize); });
  EXPECT_THAT(message, HasSubstr(text));
  if (call.collective < Collective::split) {
    EXPECT_THAT(message, HasSubstr("step " + std::string(to_string(call.collective))));
  }
}

Call call_of(Collective collective, std::size_t count = 1) {
  return {collective, memory.data(), memory.data(), count, DataType::f32};
}

constexpr Collective kPlain[] = {Collective::all_reduce,     Collective::all_gather,
                                 Collective::reduce_scatter, Collective::broadcast,
                                 Collective::reduce,         Collective::gather,
                                 Collective::scatter,        Collective::all_to_all};
constexpr Collective kRooted[] = {Collective::broadcast, Collective::reduce, Collective::gather,
                                  Collective::scatter};

TEST(CheckCall, TakesWhatCanBeDone) {
  for (const Collective collective : kPlain) {
    check_call(call_of(collective), 1, kSize);
    check_call({.collective = collective}, 1, kSize);  // nothing of nowhere
  }
  check_call({.collective = Collective::barrier}, 0, 1);
  check_call({.collective = Collective::exchange}, 0, 1);
}

TEST(CheckCall, RefusesUnknownNumbers) {
  const std::string text = "of an unknown number";
  Call call = call_of(Collective::all_reduce);
  call.collective = Collective::split;
  refused(call, text);
  call.collective = Collective::make_shared_buffer;
  refused(call, text);
  call = call_of(Collective::all_reduce);
  call.type = static_cast<DataType>(8);
  refused(call, text);
  call = call_of(Collective::all_reduce);
  call.op = static_cast<ReduceOp>(5);
  refused(call, text);
}

TEST(CheckCall, RefusesMoreThanMemoryHolds) {
  for (const Collective collective : kPlain) {
    for (const std::size_t count : {std::size_t{1} << 50, std::size_t{1} << 62, ~std::size_t{0}}) {
      refused(call_of(collective, count),
              std::to_string(count) + " elements are more than memory holds");
    }
    check_call(call_of(collective, 1 << 30), 0, kSize);
  }
  EXPECT_EQ(bytes_of_message(5, DataType::f64), 40u);
  EXPECT_THAT(expect_error(ErrorCode::bad_argument,
                           [] { bytes_of_message(~std::size_t{0}, DataType::u8); }),
              HasSubstr("elements are more than memory holds"));
}

TEST(CheckCall, RefusesRootsThatAreNotThere) {
  for (const Collective collective : kRooted) {
    for (const int root : {-1, 3, 1 << 30}) {
      Call call = call_of(collective);
      call.root = root;
      refused(call, "the root is rank " + std::to_string(root) + " in a group of 3");
      call.count = 0;
      refused(call, "use a rank from 0 to size - 1");
    }
  }
}

// Each needs the memory that it uses, at the ranks that use it.
TEST(CheckCall, RefusesMissingMemory) {
  const auto need = [](Collective collective, int rank, bool input, bool output) {
    const std::string text = "no memory for 1 elements";
    Call call = call_of(collective);
    call.root = 1;
    call.input = nullptr;
    input ? refused(call, text, rank) : check_call(call, rank, kSize);
    call = call_of(collective);
    call.root = 1;
    call.output = nullptr;
    output ? refused(call, text, rank) : check_call(call, rank, kSize);
  };
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all}) {
    need(collective, 0, true, true);
  }
  for (const Collective collective : {Collective::reduce, Collective::gather}) {
    need(collective, 0, true, false);
    need(collective, 1, true, true);
  }
  need(Collective::scatter, 0, false, true);
  need(Collective::scatter, 1, true, true);
}

TEST(CheckCall, RefusesTransfersThatCannotBe) {
  Call call{.collective = Collective::exchange, .count = 1};
  refused(call, "no transfers");
  Transfer transfer{Transfer::Kind::send, 3, memory.data(), 8};
  call.transfers = &transfer;
  refused(call, "the peer is rank 3 in a group of 3");
  transfer.peer = -1;
  refused(call, "the peer is rank -1 in a group of 3");
  transfer = {Transfer::Kind::recv, 1, nullptr, 8};
  refused(call, "no data for a message of 8 bytes");
  transfer.bytes = 0;
  check_call(call, 0, kSize);
}

TEST(CheckCall, RefusesMessagesToOneselfThatDoNotFit) {
  const std::string text = "what this rank sends to itself is not what it receives from itself";
  const Transfer send{Transfer::Kind::send, 0, memory.data(), 8};
  const Transfer recv{Transfer::Kind::recv, 0, memory.data() + 8, 8};
  const Transfer longer{Transfer::Kind::recv, 0, memory.data() + 8, 9};
  const auto call_with = [](const std::vector<Transfer>& transfers) {
    Call call{.collective = Collective::exchange, .count = transfers.size()};
    call.transfers = transfers.data();
    return call;
  };
  for (const std::vector<Transfer>& transfers :
       {std::vector{send}, std::vector{recv}, std::vector{send, longer},
        std::vector{send, recv, recv}, std::vector{send, send, recv, longer}}) {
    refused(call_with(transfers), text);
    check_call(call_with(transfers), 1, kSize);  // to another rank
  }
  const std::vector<Transfer> good = {recv, send, send, recv};
  check_call(call_with(good), 0, kSize);
}

TEST(CheckCall, RefusesCountsThatCannotBe) {
  std::array<std::size_t, kSize> some = {1, 2, 3};
  std::array<std::size_t, kSize> none{};
  Call good = call_of(Collective::all_to_all_v, 0);
  good.send_counts = good.recv_counts = some.data();
  good.send_offsets = good.recv_offsets = none.data();
  check_call(good, 0, kSize);
  for (const auto member :
       {&Call::send_counts, &Call::send_offsets, &Call::recv_counts, &Call::recv_offsets}) {
    Call call = good;
    call.*member = nullptr;
    refused(call, "no counts or no offsets");
  }
  for (const auto member :
       {&Call::send_counts, &Call::send_offsets, &Call::recv_counts, &Call::recv_offsets}) {
    std::array<std::size_t, kSize> absurd = {1, ~std::size_t{0} / 4, 1};
    Call call = good;
    call.*member = absurd.data();
    refused(call, "elements are more than memory holds");
  }
  Call call = good;
  call.input = nullptr;
  refused(call, "no memory for what is sent or received");
  call = good;
  call.output = nullptr;
  refused(call, "no memory for what is sent or received");
  call.recv_counts = none.data();
  refused(call, "give the same count for this rank in both directions");
  call.send_counts = none.data();
  call.input = nullptr;
  check_call(call, 0, kSize);
}

class SharedCallTest : public testing::Test {
 protected:
  SharedCallTest() {
    auto impl = std::make_unique<SharedBuffer::Impl>();
    impl->own = open_device("host", "boot")->allocate("calls-test", 4096);
    impl->size = 1200;
    buffer_ = std::make_unique<SharedBuffer>(std::move(impl));
  }
  Call shared(Collective collective, std::size_t count, std::size_t offset = 0) {
    return {.collective = collective,
            .count = count,
            .type = DataType::f32,
            .shared = buffer_.get(),
            .shared_offset = offset};
  }
  std::unique_ptr<SharedBuffer> buffer_;
};

TEST_F(SharedCallTest, MustFitTheBuffer) {
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    check_call(shared(collective, 300), 0, kSize);
    check_call(shared(collective, 299, 4), 0, kSize);
    refused(shared(collective, 301), "1204 bytes from offset 0 don't fit a shared buffer of 1200");
    refused(shared(collective, 300, 1), "1200 bytes from offset 1 don't fit");
  }
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    check_call(shared(collective, 100), 0, kSize);
    refused(shared(collective, 101), "1212 bytes from offset 0 don't fit a shared buffer of 1200");
    refused(shared(collective, 0, 1201), "0 bytes from offset 1201 don't fit");
    refused(shared(collective, 1, ~std::size_t{0} - 8), "don't fit");
  }
}

TEST_F(SharedCallTest, MustHaveAForm) {
  for (const Collective collective :
       {Collective::reduce, Collective::gather, Collective::scatter, Collective::all_to_all_v}) {
    refused(shared(collective, 1), "it has no form for a shared buffer");
  }
}

TEST(Tag, TellsWhatCallItIs) {
  Call call = call_of(Collective::all_reduce, 1000);
  EXPECT_EQ(describe_tag(tag_of(call)), "all_reduce f32 sum");
  call.type = DataType::i64;
  call.op = ReduceOp::avg;
  EXPECT_EQ(describe_tag(tag_of(call)), "all_reduce i64 avg");
  call.collective = Collective::reduce;
  call.root = 2;
  EXPECT_EQ(describe_tag(tag_of(call)), "reduce i64 avg root 2");
  call.collective = Collective::broadcast;
  call.root = 4095;
  EXPECT_EQ(describe_tag(tag_of(call)), "broadcast i64 root 4095");
  call.collective = Collective::all_to_all_v;
  EXPECT_EQ(describe_tag(tag_of(call)), "all_to_all_v i64");
  EXPECT_EQ(describe_tag(tag_of({.collective = Collective::barrier})), "barrier");
  EXPECT_EQ(describe_tag(tag_of({.collective = Collective::exchange, .count = 7})), "exchange");
}

// A peer may send any.
TEST(Tag, IsDescribedWhateverItIs) {
  for (std::uint32_t i = 0; i < 4096; ++i) EXPECT_FALSE(describe_tag(i << 20).empty());
  EXPECT_EQ(describe_tag(0xf000'0000), "a call of another version");
}

// What ranks must agree on makes another tag.
TEST(Tag, DiffersWhereCallsDiffer) {
  std::set<std::uint32_t> tags;
  for (int i = 0; i < static_cast<int>(Collective::split); ++i) {
    Call call = call_of(static_cast<Collective>(i), 10);
    EXPECT_TRUE(tags.insert(tag_of(call)).second);
    if (call.collective == Collective::barrier || call.collective == Collective::exchange) continue;
    call.type = DataType::f16;
    EXPECT_TRUE(tags.insert(tag_of(call)).second);
    call.count = 11;
    EXPECT_TRUE(tags.insert(tag_of(call)).second);
  }
  for (const Collective collective : kRooted) {
    Call call = call_of(collective, 10);
    call.root = 1;
    EXPECT_TRUE(tags.insert(tag_of(call)).second);
  }
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    Call call = call_of(collective, 10);
    call.op = ReduceOp::max;
    EXPECT_TRUE(tags.insert(tag_of(call)).second);
  }
}

// What a rank may give on its own doesn't.
TEST(Tag, IsTheSameWhereCallsAgree) {
  Call call = call_of(Collective::all_gather, 10);
  const std::uint32_t tag = tag_of(call);
  call.input = call.output = nullptr;
  call.op = ReduceOp::max;
  call.root = 2;
  EXPECT_EQ(tag_of(call), tag);
  EXPECT_EQ(tag_of({.collective = Collective::exchange, .count = 1}),
            tag_of({.collective = Collective::exchange, .count = 5}));
}

}  // namespace
}  // namespace ranklink
