#include "c_api/numbers.h"

#include <fmt/format.h>

#include <string_view>

#include "c_api/guard.h"

namespace ranklink::c_api {
namespace {

// An enum of C++, whose numbers begin at 0.
template <typename Enum>
struct Table {
  std::string_view argument;
  std::string_view meaning;
  Enum last;
  std::string_view choices;

  bool has(int number) const { return number >= 0 && number <= static_cast<int>(last); }
  Enum find(int number) const {
    if (has(number)) return static_cast<Enum>(number);
    throw bad_argument(fmt::format("{} {} is no {}", argument, number, meaning),
                       fmt::format("use one of {}", choices));
  }
  /// As to_string() has it, which are literals.
  const char* name(int number) const {
    return has(number) ? to_string(static_cast<Enum>(number)).data() : "";
  }
};

constexpr Table<DataType> kDataTypes{"type", "data type", DataType::i64,
                                     "RANKLINK_F16 to RANKLINK_I64"};
constexpr Table<ReduceOp> kReduceOps{"op", "reduction", ReduceOp::avg,
                                     "RANKLINK_SUM to RANKLINK_AVG"};
constexpr Table<Collective> kCollectives{"collective", "collective", Collective::make_shared_buffer,
                                         ""};
constexpr Table<LogLevel> kLogLevels{"level", "log level", LogLevel::off,
                                     "RANKLINK_LOG_DEBUG to RANKLINK_LOG_OFF"};
constexpr Table<Transfer::Kind> kTransferKinds{"kind", "kind of transfer", Transfer::Kind::recv,
                                               "RANKLINK_SEND and RANKLINK_RECV"};

#define SAME(c, cpp) static_assert(static_cast<int>(cpp) == static_cast<int>(c))
SAME(RANKLINK_F16, DataType::f16);
SAME(RANKLINK_BF16, DataType::bf16);
SAME(RANKLINK_F32, DataType::f32);
SAME(RANKLINK_F64, DataType::f64);
SAME(RANKLINK_I8, DataType::i8);
SAME(RANKLINK_U8, DataType::u8);
SAME(RANKLINK_I32, DataType::i32);
SAME(RANKLINK_I64, DataType::i64);

SAME(RANKLINK_SUM, ReduceOp::sum);
SAME(RANKLINK_PROD, ReduceOp::prod);
SAME(RANKLINK_MIN, ReduceOp::min);
SAME(RANKLINK_MAX, ReduceOp::max);
SAME(RANKLINK_AVG, ReduceOp::avg);

SAME(RANKLINK_COLLECTIVE_ALL_REDUCE, Collective::all_reduce);
SAME(RANKLINK_COLLECTIVE_ALL_GATHER, Collective::all_gather);
SAME(RANKLINK_COLLECTIVE_REDUCE_SCATTER, Collective::reduce_scatter);
SAME(RANKLINK_COLLECTIVE_BROADCAST, Collective::broadcast);
SAME(RANKLINK_COLLECTIVE_REDUCE, Collective::reduce);
SAME(RANKLINK_COLLECTIVE_GATHER, Collective::gather);
SAME(RANKLINK_COLLECTIVE_SCATTER, Collective::scatter);
SAME(RANKLINK_COLLECTIVE_ALL_TO_ALL, Collective::all_to_all);
SAME(RANKLINK_COLLECTIVE_ALL_TO_ALL_V, Collective::all_to_all_v);
SAME(RANKLINK_COLLECTIVE_EXCHANGE, Collective::exchange);
SAME(RANKLINK_COLLECTIVE_BARRIER, Collective::barrier);
SAME(RANKLINK_COLLECTIVE_SPLIT, Collective::split);
SAME(RANKLINK_COLLECTIVE_MAKE_SHARED_BUFFER, Collective::make_shared_buffer);

SAME(RANKLINK_LOG_DEBUG, LogLevel::debug);
SAME(RANKLINK_LOG_INFO, LogLevel::info);
SAME(RANKLINK_LOG_WARN, LogLevel::warn);
SAME(RANKLINK_LOG_ERROR, LogLevel::error);
SAME(RANKLINK_LOG_OFF, LogLevel::off);

SAME(RANKLINK_SEND, Transfer::Kind::send);
SAME(RANKLINK_RECV, Transfer::Kind::recv);
#undef SAME

}  // namespace

DataType to_data_type(int type) { return kDataTypes.find(type); }
ReduceOp to_reduce_op(int op) { return kReduceOps.find(op); }
Transfer::Kind to_transfer_kind(int kind) { return kTransferKinds.find(kind); }
LogLevel to_log_level(int level) { return kLogLevels.find(level); }

}  // namespace ranklink::c_api

using namespace ranklink::c_api;

const char* ranklink_data_type_name(int type) { return kDataTypes.name(type); }
const char* ranklink_reduce_op_name(int op) { return kReduceOps.name(op); }
const char* ranklink_collective_name(int collective) { return kCollectives.name(collective); }
const char* ranklink_log_level_name(int level) { return kLogLevels.name(level); }

int ranklink_data_type_size(int type, size_t* bytes, ranklink_error** error) {
  return guarded(__func__, error,
                 [&] { need(bytes, "bytes") = ranklink::size_of(to_data_type(type)); });
}
