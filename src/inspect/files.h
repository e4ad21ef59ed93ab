#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace ranklink {

/// The first 64 KiB of a file, without white space at its end; empty when it can't be read.
std::string read_text(const std::string& path);

/// What a symbolic link says; empty when it can't be read.
std::string read_link(const std::string& path);

/// What stands behind `key` at the start of a line of `text`, without white space around it, as in
/// field("Seccomp:\t2\n", "Seccomp:"); empty where there is no such line.
std::string_view field(std::string_view text, std::string_view key);

/// The number at the start of `text`, or `otherwise` where none is.
template <typename T>
T number_or(std::string_view text, T otherwise, int base = 10) {
  T number{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return result.ec == std::errc{} ? number : otherwise;
}

}  // namespace ranklink
