#include "ranklink/collective.hpp"

namespace ranklink {

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
