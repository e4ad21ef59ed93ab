#include "launch/isolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "inspect/facts.h"

namespace ranklink {
namespace {

std::size_t index_of(std::string_view kind) {
  const auto found = std::find(kNamespaceKinds.begin(), kNamespaceKinds.end(), kind);
  return static_cast<std::size_t>(found - kNamespaceKinds.begin());
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool Isolation::any() const { return std::find(own.begin(), own.end(), true) != own.end(); }

bool Isolation::has(std::string_view kind) const {
  const std::size_t index = index_of(kind);
  return index < own.size() && own[index];
}

std::string Isolation::text() const {
  std::vector<std::string_view> kinds;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i]) kinds.push_back(kNamespaceKinds[i]);
  }
  return fmt::format("{}", fmt::join(kinds, ","));
}

Isolation Isolation::with(std::string_view kind) const {
  Isolation more = *this;
  more.own.at(index_of(kind)) = true;
  return more;
}

Isolation parse_isolation(std::string_view text) {
  Isolation isolation;
  std::string_view rest = trimmed(text);
  if (rest.empty()) return isolation;
  for (;;) {
    const auto comma = rest.find(',');
    const std::string_view word = trimmed(rest.substr(0, comma));
    if (const std::size_t index = index_of(word); index < isolation.own.size()) {
      isolation.own[index] = true;
    } else if (word == "all") {
      isolation.own.fill(true);
    } else {
      std::vector<std::string_view> words(kNamespaceKinds.begin(), kNamespaceKinds.end());
      words.push_back("all");
      // "network" and "mount" are what people call them, too far away to be taken for typing
      // errors.
      const auto near = word == "network"           ? std::optional<std::string_view>("net")
                        : word.starts_with("mount") ? std::optional<std::string_view>("mnt")
                        : word == "hostname"        ? std::optional<std::string_view>("uts")
                                                    : nearest(word, words);
      throw Error({.code = ErrorCode::setting_invalid,
                   .cause = fmt::format("'{}' is no kind of namespace (in '{}')", word, text),
                   .remedy = fmt::format("{}list any of {}, separated by commas",
                                         near ? fmt::format("did you mean {}? ", *near) : "",
                                         fmt::join(words, ", "))});
    }
    if (comma == std::string_view::npos) return isolation;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace ranklink
