#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ranklink {

/// Runs `action`, which must throw an Error of this code; its message comes back for closer looks.
template <typename Action>
std::string expect_error(ErrorCode code, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown where " << name_of(code) << " was expected";
  return {};
}

}  // namespace ranklink
