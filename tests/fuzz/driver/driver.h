#pragma once

#include <cstdlib>
#include <vector>

#include "base/bytes.h"

namespace ranklink {

/// What each target defines: takes bytes that nobody vouches for. It may throw an Error and nothing
/// else.
void fuzz(ByteView input);
/// Inputs to begin with: messages as they should be.
std::vector<Bytes> seeds();

/// Ends the run as a finding unless `condition` holds.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// For a message with encode() and decode(): what was taken must come back as it is.
template <typename Message>
void take_message(ByteView input) {
  const Bytes once = Message::decode(input).encode();
  require(Message::decode(once).encode() == once);
}

/// `bytes` behind a byte that says which of several decoders is meant.
inline Bytes chosen(int which, ByteView bytes) {
  Bytes all(1, static_cast<std::byte>(which));
  all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}

}  // namespace ranklink
