#pragma once

#include <string>

#include "ranklink/error.hpp"
#include "ranklink/ranklink.h"

namespace ranklink::c_api {

/// To be called while an exception is handled: its status, with an error object in `*error` if
/// memory allows. `function` is the step of an Error that has none.
int status_of_exception(const char* function, ranklink_error** error) noexcept;

/// Runs the body of one C function.
template <typename Body>
int guarded(const char* function, ranklink_error** error, const Body& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    body();
    return RANKLINK_OK;
  } catch (...) {
    return status_of_exception(function, error);
  }
}

/// An Error(bad_argument).
Error bad_argument(std::string cause, std::string remedy);

/// Throws Error(bad_argument) for a NULL.
void refuse_null(const void* pointer, const char* name);

/// What `pointer` points to; throws Error(bad_argument) if that is nothing.
template <typename T>
T& need(T* pointer, const char* name) {
  refuse_null(pointer, name);
  return *pointer;
}

}  // namespace ranklink::c_api
