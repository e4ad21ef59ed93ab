#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "ranklink/visibility.hpp"

namespace ranklink {

enum class LogLevel { debug, info, warn, error, off };

/// Receives one line without its newline. May be called from any thread, never from two at once.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Sends what the library logs to `sink` instead of standard error; an empty sink restores that.
RANKLINK_PUBLIC void set_log_sink(LogSink sink);
/// Lines below `level` are dropped. The default is `warn`, or the setting RANKLINK_LOG.
RANKLINK_PUBLIC void set_log_level(LogLevel level);
RANKLINK_PUBLIC std::string_view to_string(LogLevel level);
RANKLINK_PUBLIC std::optional<LogLevel> parse_log_level(std::string_view text);

}  // namespace ranklink
