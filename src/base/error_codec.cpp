#include "base/error_codec.h"

namespace ranklink {
namespace {

constexpr std::size_t kMaxText = 16'384;

std::string cut(const std::string& text, std::size_t limit) {
  return text.size() <= limit ? text : text.substr(0, limit - 3) + "...";
}

}  // namespace

void encode(const Error& error, Writer& to, std::size_t limit) {
  to.put(error.code());
  to.put(static_cast<std::int32_t>(error.rank()));
  to.put(static_cast<std::int32_t>(error.peer()));
  const std::string step = cut(error.step(), limit / 5);
  const std::string remedy = cut(error.remedy(), limit / 5);
  const std::string context = cut(error.context(), limit / 5);
  to.text(step);
  to.text(cut(error.cause(), limit - step.size() - remedy.size() - context.size()));
  to.text(remedy);
  to.text(context);
}

Error decode_error(Reader& from) {
  Error::Parts parts;
  parts.code = from.get<ErrorCode>();
  if (name_of(parts.code).empty()) Reader::fail("an error code that isn't in the table");
  parts.rank = from.get<std::int32_t>();
  parts.peer = from.get<std::int32_t>();
  parts.step = from.text(kMaxText);
  parts.cause = from.text(kMaxText);
  parts.remedy = from.text(kMaxText);
  parts.context = from.text(kMaxText);
  return Error(std::move(parts));
}

}  // namespace ranklink
