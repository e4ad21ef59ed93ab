#include "ranklink/log.hpp"

#include <fmt/format.h>

#include <string>

#include "c_api/guard.h"
#include "c_api/numbers.h"

using namespace ranklink::c_api;

int ranklink_set_log_sink(ranklink_log_sink sink, void* context, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    if (sink == nullptr) return ranklink::set_log_sink({});
    ranklink::set_log_sink([sink, context](ranklink::LogLevel level, std::string_view line) {
      try {
        sink(context, static_cast<int>(level), std::string(line).c_str());
      } catch (...) {
        // What logs a line is not to fail because of it.
      }
    });
  });
}

int ranklink_set_log_level(int level, ranklink_error** error) {
  return guarded(__func__, error, [&] { ranklink::set_log_level(to_log_level(level)); });
}

int ranklink_parse_log_level(const char* name, int* level, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    const auto found = ranklink::parse_log_level(&need(name, "name"));
    if (!found) {
      throw bad_argument(fmt::format("'{}' is no log level", name),
                         "use one of debug, info, warn, error, off");
    }
    need(level, "level") = static_cast<int>(*found);
  });
}
