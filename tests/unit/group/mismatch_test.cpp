// Ranks that don't make the same calls.

#include <gmock/gmock.h>

#include <array>

#include "group_threads.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

struct Mismatch {
  const char* name;
  std::size_t count;
  Call other;  // of rank 1
  const char* text;
};

class MismatchTest : public testing::TestWithParam<std::tuple<const char*, Mismatch>> {};

constexpr Call kSum{Collective::all_reduce, nullptr, nullptr, 0, DataType::f32, ReduceOp::sum};

Mismatch differs_by(const char* name, std::size_t count, Call other, const char* text) {
  other.count = other.count == 0 ? count : other.count;
  return {name, count, other, text};
}

Mismatch collective(Collective other, const char* text) {
  Call call = kSum;
  call.collective = other;
  return differs_by("Collective", 10, call, text);
}

Mismatch type() {
  Call call = kSum;
  call.type = DataType::i32;
  return differs_by("Type", 10, call, "all_reduce i32 sum");
}

Mismatch operation() {
  Call call = kSum;
  call.op = ReduceOp::max;
  return differs_by("Operation", 10, call, "all_reduce f32 max");
}

Mismatch count(const char* name, std::size_t mine, std::size_t other) {
  Call call = kSum;
  call.count = other;
  return differs_by(name, mine, call, "with different counts");
}

INSTANTIATE_TEST_SUITE_P(
    Mechanisms, MismatchTest,
    testing::Combine(testing::Values("auto", "none"),
                     testing::Values(collective(Collective::all_gather, "all_gather f32"), type(),
                                     operation(), count("Count", 10, 11),
                                     count("LongCount", 100'000, 100'001),
                                     count("ShortAndLong", 10, 200'000))),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) + std::get<1>(test.param).name;
    });

TEST_P(MismatchTest, FailsOnAllRanks) {
  const std::string mechanism = std::get<0>(GetParam());
  const Mismatch& mismatch = std::get<1>(GetParam());
  const auto thrown = run_groups(
      3, {{"RANKLINK_MECHANISM", mechanism}, {"RANKLINK_OP_TIMEOUT", "20s"}}, [&](Group& group) {
        std::vector<float> input(200'001);
        std::vector<float> output(600'003);
        Call call = kSum;
        call.count = mismatch.count;
        if (group.rank() == 1) call = mismatch.other;
        call.input = input.data();
        call.output = output.data();
        group.run(call);
        for (;;) group.barrier();  // whoever hasn't seen it yet
      });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::call_mismatch) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(mismatch.text));
    EXPECT_THAT(error->remedy(), HasSubstr("make the same calls on all ranks"));
  }
}

TEST(Mismatch, OfRootsIsNoticed) {
  const auto thrown = run_groups(3, {{"RANKLINK_OP_TIMEOUT", "20s"}}, [&](Group& group) {
    std::array<float, 10> data{};
    group.broadcast(data.data(), data.size(), DataType::f32, group.rank() == 1 ? 2 : 0);
    for (;;) group.barrier();
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::call_mismatch) << error->what();
  }
}

// What was started throws when it is waited for, and no other call is begun.
TEST(Mismatch, OfWhatWasStartedIsKeptForWhoWaits) {
  const auto thrown = run_groups(2, {{"RANKLINK_OP_TIMEOUT", "20s"}}, [&](Group& group) {
    std::array<float, 10> data{};
    Call call{Collective::all_reduce, data.data(), data.data(), data.size(), DataType::f32};
    if (group.rank() == 1) call.op = ReduceOp::min;
    const Work work = group.start(call);
    const Work next = group.start(call);
    EXPECT_THROW(work.wait(), Error);
    EXPECT_TRUE(work.done());
    ASSERT_TRUE(work.error());
    EXPECT_EQ(work.error()->code(), ErrorCode::call_mismatch) << work.error()->what();
    EXPECT_THROW(next.wait(), Error);
    group.barrier();
  });
  for (const auto& error : thrown) EXPECT_TRUE(error);
}

// A call that no rank can do fails at the rank that makes it, and spoils nothing.
TEST(Mismatch, IsNoneIfACallIsRefused) {
  run_groups_well(2, {}, [&](Group& group) {
    if (group.rank() == 0) {
      EXPECT_THROW(group.all_reduce(nullptr, nullptr, 5, DataType::f32), Error);
      EXPECT_THROW(group.start({Collective::all_reduce, nullptr, nullptr, 5}), Error);
    }
    group.barrier();
    std::array<float, 2> data = {1, 2};
    group.all_reduce(data);
    EXPECT_EQ(data[1], 4);
  });
}

}  // namespace
}  // namespace ranklink
