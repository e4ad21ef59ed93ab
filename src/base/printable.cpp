#include "base/printable.h"

#include <algorithm>
#include <cstddef>

namespace ranklink {
namespace {

// The length of the UTF-8 character at the start of `text`, or 0 if none is there.
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xc2 && lead < 0xe0  ? 2
                             : lead >= 0xe0 && lead < 0xf0  ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length),
                     continues)
             ? length
             : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    if (text.starts_with("\x1b[")) {
      const auto end = text.find_first_not_of("0123456789;?", 2);
      length = end == std::string_view::npos ? text.size() : end + 1;
    } else if (length == 0) {
      clean += '?';
      length = 1;
    } else if (text[0] == '\t') {
      clean += ' ';
    } else if (static_cast<unsigned char>(text[0]) >= 0x20 && text[0] != 0x7f) {
      clean += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return clean;
}

}  // namespace ranklink
