#include "ranklink/error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ranklink {
namespace {

struct Entry {
  ErrorCode code;
  std::string_view name;
  std::string_view meaning;
};

constexpr Entry kTable[] = {
#define RANKLINK_ERROR(number, name, meaning) {ErrorCode::name, #name, meaning},
#include "ranklink/error_codes.def"
#undef RANKLINK_ERROR
};

const Entry* find(ErrorCode code) {
  for (const Entry& entry : kTable) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

std::string compose(const Error::Parts& p) {
  std::string text = fmt::format("{} {}: ", to_string(p.code), name_of(p.code));
  if (p.rank >= 0) text += fmt::format("rank {}, ", p.rank);
  if (p.peer >= 0) text += fmt::format("peer {}, ", p.peer);
  if (!p.step.empty()) text += fmt::format("step {}, ", p.step);
  if (text.ends_with(", ")) text.replace(text.size() - 2, 2, ": ");
  text += p.cause.empty() ? std::string(meaning_of(p.code)) : p.cause;
  if (!p.remedy.empty()) text += fmt::format(". Remedy: {}", p.remedy);
  if (!p.context.empty()) text += fmt::format(" ({})", p.context);
  return text;
}

}  // namespace

Error::Error(Parts parts) {
  std::string text = compose(parts);
  state_ = std::make_shared<const State>(State{std::move(parts), std::move(text)});
}

std::string to_string(ErrorCode code) { return fmt::format("RL{}", static_cast<int>(code)); }

std::string_view name_of(ErrorCode code) {
  const Entry* entry = find(code);
  return entry ? entry->name : std::string_view{};
}

std::string_view meaning_of(ErrorCode code) {
  const Entry* entry = find(code);
  return entry ? entry->meaning : std::string_view{};
}

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  return fmt::format("{} ({})", name ? name : "errno " + std::to_string(error),
                     std::strerror(error));
}

Error system_error(std::string_view call, int error, std::string remedy) {
  ErrorCode code = ErrorCode::system_call;
  if (error == EMFILE || error == ENFILE) {
    code = ErrorCode::descriptors_short;
    if (remedy.empty())
      remedy = "raise the limit of open files (ulimit -n, LimitNOFILE=, --ulimit nofile)";
  } else if (error == ENOMEM) {
    code = ErrorCode::memory_short;
  }
  return Error({.code = code,
                .cause = fmt::format("{}: {}", call, errno_text(error)),
                .remedy = std::move(remedy)});
}

Error with(const Error& error, const std::function<void(Error::Parts&)>& change) {
  Error::Parts parts = error.parts();
  change(parts);
  return Error(std::move(parts));
}

}  // namespace ranklink
