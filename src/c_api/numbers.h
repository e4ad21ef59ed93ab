#pragma once

#include "ranklink/collective.hpp"
#include "ranklink/log.hpp"

namespace ranklink::c_api {

// From the C interface's numbers. They throw Error(bad_argument) for a number that has no meaning.

DataType to_data_type(int type);
ReduceOp to_reduce_op(int op);
Transfer::Kind to_transfer_kind(int kind);
LogLevel to_log_level(int level);

}  // namespace ranklink::c_api
