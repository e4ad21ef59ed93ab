#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ranklink/error.hpp"

namespace ranklink {

/// `EPERM (Operation not permitted)`
std::string errno_text(int error);

/// The error of a failed system call: `call` says which and on what, as in `open /dev/shm/x`.
/// EMFILE, ENFILE and ENOMEM get codes and remedies of their own.
Error system_error(std::string_view call, int error, std::string remedy = {});

/// A copy of `error` with some of its parts changed.
Error with(const Error& error, const std::function<void(Error::Parts&)>& change);

}  // namespace ranklink
