#pragma once

#include "base/bytes.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// An Error as bytes, to carry it between ranks. Texts longer than `limit` are cut.
void encode(const Error& error, Writer& to, std::size_t limit = 16'384);
/// Throws Error(protocol_violation).
Error decode_error(Reader& from);

}  // namespace ranklink
