#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"

namespace ranklink {

/// Where a setting's value came from.
enum class Origin { unset, built_in, environment, command_line, program, launcher };
std::string_view to_string(Origin origin);

enum class SettingScope {
  per_rank,    ///< may differ between ranks
  must_agree,  ///< the job stops when it differs
  launcher,    ///< read by the launcher only
  internal,    ///< from the launcher to its ranks; not for users
};
std::string_view to_string(SettingScope scope);

/// One row of the one table: adding a setting is adding a row.
struct SettingRow {
  std::string_view name;      ///< the environment variable
  std::string_view type;      ///< for people: `duration`, `auto|fd+socket|...`
  std::string_view built_in;  ///< the default; empty means unset
  SettingScope scope;
  std::string_view help;
  bool secret = false;  ///< its value is never shown
  /// Says why a value can't be used, or nothing.
  std::optional<std::string> (*refuse)(std::string_view value) = nullptr;
};

std::span<const SettingRow> setting_table();

struct Setting {
  std::string value;
  Origin origin = Origin::unset;
};

/// The effective settings of one process. Values are checked when they are set; unknown names and
/// unusable values are errors with the nearest right one.
class Settings {
 public:
  Settings();  ///< the defaults

  /// Reads RANKLINK_ variables, all of them: one that isn't in the table is an error, except the
  /// service variables that Kubernetes injects. `environment` holds NAME=VALUE.
  void read_environment(char** environment);
  /// Throws Error(setting_unknown) or Error(setting_invalid).
  void set(std::string_view name, std::string_view value, Origin origin);

  const Setting& get(std::string_view name) const;
  const std::string& value(std::string_view name) const { return get(name).value; }
  bool is_set(std::string_view name) const { return get(name).origin != Origin::unset; }
  /// A duration setting; never() when unset.
  Deadline deadline(std::string_view name) const;
  Milliseconds duration(std::string_view name) const;

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

/// `250ms`, `30s`, `5m`, `2h`; a bare number is seconds. Nothing for what isn't one.
std::optional<Milliseconds> parse_duration(std::string_view text);

/// The candidate that takes the fewest edits to reach, if that is near enough to be meant.
std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates);

}  // namespace ranklink
