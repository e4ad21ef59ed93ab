#include "base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "ranklink/log.hpp"

namespace ranklink {
namespace {

using Refusal = std::optional<std::string>;

Refusal need_one_of(std::string_view value, const std::vector<std::string_view>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return std::nullopt;
  const auto near = nearest(value, words);
  return fmt::format("one of {} is needed{}", fmt::join(words, ", "),
                     near ? fmt::format("; did you mean {}?", *near) : "");
}

Refusal need_duration(std::string_view value) {
  if (parse_duration(value)) return std::nullopt;
  return "a duration is needed, as in 250ms, 30s, 5m or 2h";
}

Refusal need_mechanism(std::string_view value) {
  return need_one_of(value, {"auto", "fd+socket", "fd+pidfd", "none"});
}
Refusal need_trials(std::string_view value) { return need_one_of(value, {"first", "all"}); }
Refusal need_device(std::string_view value) { return need_one_of(value, {"host"}); }
Refusal need_log_level(std::string_view value) {
  return need_one_of(value, {"debug", "info", "warn", "error", "off"});
}
// Which names there are, only who does the collectives knows.
Refusal need_algorithms(std::string_view value) {
  if (value == "auto") return std::nullopt;
  const bool plausible =
      value.find('=') != std::string_view::npos &&
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_=,") == std::string_view::npos;
  if (plausible) return std::nullopt;
  return "auto is needed, or COLLECTIVE=NAME, as in all_reduce=two_phase,barrier=flat";
}
Refusal need_number(std::string_view value) {
  int number = 0;
  const auto end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc{} && stop == end && number >= 0) return std::nullopt;
  return "a number from 0 is needed";
}
Refusal need_rendezvous(std::string_view value) {
  for (const std::string_view scheme : {"tcp://", "unix://", "file://"}) {
    if (value.starts_with(scheme) && value.size() > scheme.size()) return std::nullopt;
  }
  return "tcp://HOST:PORT, unix:///PATH or file:///DIRECTORY is needed";
}
Refusal need_directory(std::string_view value) {
  if (value.starts_with('/')) return std::nullopt;
  return "an absolute path is needed";
}
Refusal need_secret(std::string_view value) {
  if (value.size() >= 16) return std::nullopt;
  return "at least 16 characters are needed, as from: openssl rand -hex 32";
}

constexpr SettingRow kTable[] = {
    {"RANKLINK_RENDEZVOUS", "address", "", SettingScope::per_rank,
     "where ranks meet: tcp://HOST:PORT, unix:///PATH or file:///SHARED/DIRECTORY; rank 0 opens it "
     "(fallback: MASTER_ADDR and MASTER_PORT)",
     false, need_rendezvous},
    {"RANKLINK_SECRET", "text", "", SettingScope::per_rank,
     "the job's secret, the same on all ranks; needed for tcp and unix rendezvous", true,
     need_secret},
    {"RANKLINK_DEVICE", "host", "host", SettingScope::must_agree,
     "the kind of device whose memory is shared", false, need_device},
    {"RANKLINK_MECHANISM", "auto|fd+socket|fd+pidfd|none", "auto", SettingScope::must_agree,
     "how memory may be shared; auto tries all, anything else is obeyed or the job fails", false,
     need_mechanism},
    {"RANKLINK_TRIALS", "first|all", "first", SettingScope::must_agree,
     "try each pair's mechanisms until the first that works, or all of them", false, need_trials},
    {"RANKLINK_ALGORITHM", "auto|COLLECTIVE=NAME,...", "auto", SettingScope::must_agree,
     "how collectives are done; auto goes by size (`ranklink settings --tuning` shows the names)",
     false, need_algorithms},
    {"RANKLINK_JOIN_TIMEOUT", "duration", "120s", SettingScope::per_rank,
     "the deadline of the whole bring-up", false, need_duration},
    {"RANKLINK_OP_TIMEOUT", "duration", "300s", SettingScope::per_rank,
     "the deadline of one collective", false, need_duration},
    {"RANKLINK_RUN_TIMEOUT", "duration", "", SettingScope::launcher,
     "the deadline of a launched job; none by default", false, need_duration},
    {"RANKLINK_SOCKET_DIR", "directory", "", SettingScope::per_rank,
     "where ranks that no launcher started put their socket files; tried before "
     "NVIDIA_DRA_LOCAL_IPC_DIR, XDG_RUNTIME_DIR, TMPDIR and /dev/shm",
     false, need_directory},
    {"RANKLINK_LOG", "debug|info|warn|error|off", "warn", SettingScope::per_rank,
     "the least level that is logged to standard error", false, need_log_level},
    {"RANKLINK_LAUNCHER_FD", "number", "", SettingScope::internal,
     "the inherited socket to the launcher's rendezvous", false, need_number},
    {"RANKLINK_MESSAGE_FD", "number", "", SettingScope::internal,
     "the inherited pipe on which a rank reports to its launcher", false, need_number},
};

const SettingRow* find_row(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable),
                                 [&](const SettingRow& r) { return r.name == name; });
  return row == std::end(kTable) ? nullptr : row;
}

// A service named "ranklink" or "ranklink-x" makes Kubernetes inject these into every container.
bool is_kubernetes_service_variable(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
  if (name.find("_SERVICE_PORT_") != std::string_view::npos) return true;
  const auto port = name.find("_PORT_");
  const std::string_view rest =
      port == std::string_view::npos ? std::string_view{} : name.substr(port + 6);
  for (const std::string_view protocol : {"_TCP", "_UDP", "_SCTP"}) {
    if (rest.find(protocol) != std::string_view::npos) return true;
  }
  if (!name.ends_with("_PORT")) return false;
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

}  // namespace

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::unset:
      return "unset";
    case Origin::built_in:
      return "default";
    case Origin::environment:
      return "environment";
    case Origin::command_line:
      return "command line";
    case Origin::program:
      return "program";
    case Origin::launcher:
      return "launcher";
  }
  return "";
}

std::string_view to_string(SettingScope scope) {
  switch (scope) {
    case SettingScope::per_rank:
      return "per rank";
    case SettingScope::must_agree:
      return "must agree";
    case SettingScope::launcher:
      return "launcher";
    case SettingScope::internal:
      return "internal";
  }
  return "";
}

std::span<const SettingRow> setting_table() { return kTable; }

Settings::Settings() {
  for (const SettingRow& row : kTable) {
    values_.emplace(row.name, Setting{std::string(row.built_in),
                                      row.built_in.empty() ? Origin::unset : Origin::built_in});
  }
}

void Settings::read_environment(char** environment) {
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair = *entry;
    if (!pair.starts_with("RANKLINK_")) continue;
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (!find_row(name) && is_kubernetes_service_variable(name, value)) continue;
    set(name, value, Origin::environment);
  }
}

void Settings::set(std::string_view name, std::string_view value, Origin origin) {
  const SettingRow* row = find_row(name);
  if (!row) {
    std::vector<std::string_view> names;
    for (const SettingRow& known : kTable) {
      if (known.scope != SettingScope::internal) names.push_back(known.name);
    }
    const auto near = nearest(name, names);
    throw Error(
        {.code = ErrorCode::setting_unknown,
         .cause = fmt::format("there is no setting {} (it came from: {})", name, to_string(origin)),
         .remedy = near ? fmt::format("did you mean {}?", *near)
                        : "see `ranklink settings`, or unset it"});
  }
  if (row->refuse) {
    if (const auto why = row->refuse(value)) {
      const std::string shown = row->secret ? "(hidden)" : fmt::format("'{}'", value);
      throw Error({.code = ErrorCode::setting_invalid,
                   .cause = fmt::format("{}={} can't be used (it came from: {})", name, shown,
                                        to_string(origin)),
                   .remedy = *why});
    }
  }
  values_.insert_or_assign(std::string(name), Setting{std::string(value), origin});
}

const Setting& Settings::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    throw Error({.code = ErrorCode::setting_unknown, .cause = fmt::format("no setting {}", name)});
  }
  return found->second;
}

Milliseconds Settings::duration(std::string_view name) const {
  return parse_duration(value(name)).value_or(Milliseconds::max());
}

Deadline Settings::deadline(std::string_view name) const {
  const auto wait = parse_duration(value(name));
  return wait ? Deadline::after(*wait) : Deadline::never();
}

std::optional<Milliseconds> parse_duration(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1e3;
  if (unit == "ms") factor = 1;
  if (unit == "m" || unit == "min") factor = 60e3;
  if (unit == "h") factor = 3600e3;
  const double milliseconds = number * factor;
  if (factor == 0 || milliseconds > 1e12) return std::nullopt;
  return Milliseconds(static_cast<std::int64_t>(milliseconds));
}

std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates) {
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 4) + 1;
  for (const std::string_view candidate : candidates) {
    // Levenshtein's distance, one row at a time.
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i);
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t same = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, same});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace ranklink
