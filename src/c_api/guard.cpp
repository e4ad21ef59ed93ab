#include "c_api/guard.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "c_api/handles.h"

namespace ranklink::c_api {
namespace {

Error current_exception_as_error(const char* function) {
  try {
    throw;
  } catch (const Error& error) {
    if (!error.step().empty()) return error;
    return with(error, [&](Error::Parts& parts) { parts.step = function; });
  } catch (const std::bad_alloc&) {
    return Error({.code = ErrorCode::rank_failed,
                  .step = function,
                  .cause = "out of memory",
                  .remedy = "look at how much memory this process may use"});
  } catch (const std::exception& error) {
    return Error({.code = ErrorCode::rank_failed, .step = function, .cause = error.what()});
  } catch (...) {
    return Error({.code = ErrorCode::rank_failed,
                  .step = function,
                  .cause = "an exception that is no std::exception"});
  }
}

int code_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  } catch (...) {
    return RANKLINK_ERROR_rank_failed;
  }
}

}  // namespace

int status_of_exception(const char* function, ranklink_error** error) noexcept {
  if (error != nullptr) {
    try {
      *error = new ranklink_error{current_exception_as_error(function)};
    } catch (...) {
      // The status alone has to do: there is no memory to say more.
    }
  }
  return code_of_current_exception();
}

Error bad_argument(std::string cause, std::string remedy) {
  return Error(
      {.code = ErrorCode::bad_argument, .cause = std::move(cause), .remedy = std::move(remedy)});
}

void refuse_null(const void* pointer, const char* name) {
  if (pointer != nullptr) return;
  throw bad_argument(fmt::format("{} is NULL", name), fmt::format("give a {}", name));
}

}  // namespace ranklink::c_api
