#pragma once

#include <fmt/format.h>

#include <string_view>

#include "ranklink/log.hpp"

namespace ranklink {

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ranklink
