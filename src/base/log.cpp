#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>

namespace ranklink {
namespace {

constexpr std::string_view kNames[] = {"debug", "info", "warn", "error", "off"};

std::atomic<LogLevel> g_level{LogLevel::warn};

std::mutex& sink_mutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& sink() {
  static LogSink sink;
  return sink;
}

}  // namespace

void set_log_sink(LogSink new_sink) {
  const std::lock_guard lock(sink_mutex());
  sink() = std::move(new_sink);
}

void set_log_level(LogLevel level) { g_level = level; }

std::string_view to_string(LogLevel level) { return kNames[static_cast<int>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

bool log_enabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view line) {
  const std::lock_guard lock(sink_mutex());
  if (sink()) {
    sink()(level, line);
  } else {
    const std::string text = fmt::format("ranklink {}: {}\n", to_string(level), line);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

}  // namespace ranklink
