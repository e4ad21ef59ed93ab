#include "ranklink/collective.hpp"

namespace ranklink {

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
      return 1;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::f32:
    case DataType::i32:
      return 4;
    case DataType::f64:
    case DataType::i64:
      break;
  }
  return 8;
}

std::string_view to_string(DataType type) {
  constexpr std::string_view kNames[] = {"f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64"};
  return kNames[static_cast<int>(type)];
}

std::string_view to_string(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "prod", "min", "max", "avg"};
  return kNames[static_cast<int>(op)];
}

std::string_view to_string(Collective collective) {
  constexpr std::string_view kNames[] = {
      "all_reduce", "all_gather", "reduce_scatter",    "broadcast",    "reduce",
      "gather",     "scatter",    "all_to_all",        "all_to_all_v", "exchange",
      "barrier",    "split",      "make_shared_buffer"};
  return kNames[static_cast<int>(collective)];
}

}  // namespace ranklink
