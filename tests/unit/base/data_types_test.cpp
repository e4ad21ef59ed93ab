#include <gtest/gtest.h>

#include "ranklink/collective.hpp"

namespace ranklink {
namespace {

TEST(DataTypesTest, HaveSizesAndNames) {
  const std::tuple<DataType, std::size_t, std::string_view> expected[] = {
      {DataType::f16, 2, "f16"}, {DataType::bf16, 2, "bf16"}, {DataType::f32, 4, "f32"},
      {DataType::f64, 8, "f64"}, {DataType::i8, 1, "i8"},     {DataType::u8, 1, "u8"},
      {DataType::i32, 4, "i32"}, {DataType::i64, 8, "i64"}};
  for (const auto& [type, size, name] : expected) {
    EXPECT_EQ(size_of(type), size) << name;
    EXPECT_EQ(to_string(type), name);
  }
}

TEST(DataTypesTest, FollowCppTypes) {
  static_assert(data_type<float>() == DataType::f32);
  static_assert(data_type<const double>() == DataType::f64);
  static_assert(data_type<std::int8_t>() == DataType::i8);
  static_assert(data_type<std::uint8_t>() == DataType::u8);
  static_assert(data_type<std::int32_t>() == DataType::i32);
  static_assert(data_type<std::int64_t>() == DataType::i64);
}

TEST(DataTypesTest, OperationsHaveNames) {
  EXPECT_EQ(to_string(ReduceOp::sum), "sum");
  EXPECT_EQ(to_string(ReduceOp::prod), "prod");
  EXPECT_EQ(to_string(ReduceOp::min), "min");
  EXPECT_EQ(to_string(ReduceOp::max), "max");
  EXPECT_EQ(to_string(ReduceOp::avg), "avg");
}

TEST(DataTypesTest, CollectivesHaveNames) {
  const std::pair<Collective, std::string_view> expected[] = {
      {Collective::all_reduce, "all_reduce"},
      {Collective::all_gather, "all_gather"},
      {Collective::reduce_scatter, "reduce_scatter"},
      {Collective::broadcast, "broadcast"},
      {Collective::reduce, "reduce"},
      {Collective::gather, "gather"},
      {Collective::scatter, "scatter"},
      {Collective::all_to_all, "all_to_all"},
      {Collective::all_to_all_v, "all_to_all_v"},
      {Collective::exchange, "exchange"},
      {Collective::barrier, "barrier"},
      {Collective::split, "split"},
      {Collective::make_shared_buffer, "make_shared_buffer"}};
  for (const auto& [collective, name] : expected) EXPECT_EQ(to_string(collective), name);
}

}  // namespace
}  // namespace ranklink
