#pragma once

#include <string>
#include <string_view>

namespace ranklink {

/// The text on one line, as an error shows it: without a terminal's colours and other control
/// characters, and with `?` for what isn't UTF-8, which JSON wouldn't take.
std::string printable(std::string_view text);

}  // namespace ranklink
