#include "ranklink/error.hpp"

#include <cstdlib>

#include "c_api/handles.h"

// Errors, versions, and what else can't fail. Names and meanings are literals of a table.

namespace {

// No table has a number outside of those of ErrorCode.
ranklink::ErrorCode to_code(int status) {
  const auto number = static_cast<std::uint16_t>(status);
  return static_cast<ranklink::ErrorCode>(number == status ? number : 0);
}

const char* or_empty(std::string_view literal) { return literal.empty() ? "" : literal.data(); }

}  // namespace

int ranklink_abi_version(void) { return RANKLINK_ABI_VERSION; }
const char* ranklink_version(void) { return RANKLINK_VERSION; }

const char* ranklink_status_name(int status) { return or_empty(name_of(to_code(status))); }
const char* ranklink_status_meaning(int status) { return or_empty(meaning_of(to_code(status))); }

int ranklink_error_code(const ranklink_error* error) {
  return error == nullptr ? RANKLINK_OK : static_cast<int>(error->error.code());
}
const char* ranklink_error_name(const ranklink_error* error) {
  return ranklink_status_name(ranklink_error_code(error));
}
int ranklink_error_rank(const ranklink_error* error) {
  return error == nullptr ? -1 : error->error.rank();
}
int ranklink_error_peer(const ranklink_error* error) {
  return error == nullptr ? -1 : error->error.peer();
}
const char* ranklink_error_step(const ranklink_error* error) {
  return error == nullptr ? "" : error->error.step().c_str();
}
const char* ranklink_error_cause(const ranklink_error* error) {
  return error == nullptr ? "" : error->error.cause().c_str();
}
const char* ranklink_error_remedy(const ranklink_error* error) {
  return error == nullptr ? "" : error->error.remedy().c_str();
}
const char* ranklink_error_context(const ranklink_error* error) {
  return error == nullptr ? "" : error->error.context().c_str();
}
const char* ranklink_error_message(const ranklink_error* error) {
  return error == nullptr ? "" : error->error.what();
}
void ranklink_error_free(ranklink_error* error) { delete error; }

void ranklink_string_free(char* string) { std::free(string); }
