#pragma once

#include "base/bytes.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// An Error as bytes, to carry it between ranks. Its texts are cut to be no longer than `limit` all
/// together: the cause gets what the others leave of it, and they leave at least two fifths.
void encode(const Error& error, Writer& to, std::size_t limit = 16'384);
/// Throws Error(protocol_violation).
Error decode_error(Reader& from);

}  // namespace ranklink
