#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// The types of elements that collectives work on. f16 is IEEE 754 binary16, bf16 the upper half of
/// an f32; both are summed in f32 and rounded once, to nearest even.
enum class DataType : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, i64 };

/// Elementwise, over all ranks in rank order. Integers wrap. `avg` is the sum divided by the number
/// of ranks; for integers it is rounded towards zero. `min` and `max` give NaN where any rank has
/// one.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
  exchange,  ///< send, recv, and groups of them
  barrier,
  split,
  make_shared_buffer,
};

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  constexpr std::size_t kSizes[] = {2, 2, 4, 8, 1, 1, 4, 8};
  return kSizes[static_cast<std::size_t>(type)];
}
/// As in `f32`, `sum`, `all_reduce`.
RANKLINK_PUBLIC std::string_view to_string(DataType type);
RANKLINK_PUBLIC std::string_view to_string(ReduceOp op);
RANKLINK_PUBLIC std::string_view to_string(Collective collective);

/// The DataType of a C++ type.
template <typename T>
consteval DataType data_type() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, float>)
    return DataType::f32;
  else if constexpr (std::same_as<U, double>)
    return DataType::f64;
  else if constexpr (std::same_as<U, std::int8_t>)
    return DataType::i8;
  else if constexpr (std::same_as<U, std::uint8_t>)
    return DataType::u8;
  else if constexpr (std::same_as<U, std::int32_t>)
    return DataType::i32;
  else if constexpr (std::same_as<U, std::int64_t>)
    return DataType::i64;
  else
    static_assert(!std::same_as<U, T>, "pass a pointer and a DataType for other types");
}

/// One message of Group::exchange: to `peer`, or from it.
struct Transfer {
  enum class Kind : std::uint8_t { send, recv };
  Kind kind = Kind::send;
  int peer = 0;
  void* data = nullptr;  ///< only read by a send
  std::size_t bytes = 0;
};

class SharedBuffer;

/// One call of a collective, as plain data. Group's functions make these.
struct Call {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  ///< elements; a rank's share where the ranks' shares are put together
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  /// all_to_all_v: `size` numbers each, in elements.
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_offsets = nullptr;
  const std::size_t* recv_counts = nullptr;
  const std::size_t* recv_offsets = nullptr;
  const Transfer* transfers = nullptr;  ///< exchange: `count` of them
  SharedBuffer* shared = nullptr;       ///< in place of input and output
  std::size_t shared_offset = 0;        ///< bytes
};

}  // namespace ranklink
