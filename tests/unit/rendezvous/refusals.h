#pragma once

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace ranklink {

/// `decode` must take all of `bytes`, and refuse each beginning of it, and bytes behind its end.
template <typename Decode>
void expect_whole_only(const Bytes& bytes, Decode decode) {
  EXPECT_NO_THROW(decode(ByteView(bytes)));
  const auto refused = [&](ByteView part) {
    try {
      decode(part);
      ADD_FAILURE() << "took " << part.size() << " bytes of a message of " << bytes.size();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::protocol_violation) << error.what();
    }
  };
  for (std::size_t size = 0; size < bytes.size(); ++size) refused(ByteView(bytes).first(size));
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  refused(longer);
}

}  // namespace ranklink
