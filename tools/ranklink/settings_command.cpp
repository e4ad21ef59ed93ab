#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collective/choose.h"
#include "commands.h"

namespace ranklink {
namespace {

constexpr const char* kExamples = R"(Examples:
  ranklink settings
  RANKLINK_JOIN_TIMEOUT=30s ranklink settings --json
  ranklink settings --tuning

A setting is an environment variable. Where it says `must agree`, the job stops when ranks differ.)";

constexpr std::size_t kWidth = 100;

struct Line {
  const SettingRow& row;
  std::string value;
  std::string_view origin;
};

std::vector<Line> effective(const Settings& settings) {
  std::vector<Line> lines;
  for (const SettingRow& row : setting_table()) {
    const Setting& setting = settings.get(row.name);
    const bool is_set = setting.origin != Origin::unset;
    if (row.scope == SettingScope::internal && !is_set) continue;
    lines.push_back(
        {row, row.secret && is_set ? "(set)" : setting.value, to_string(setting.origin)});
  }
  return lines;
}

// Breaks text between words, so that no line is longer than `width`.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    auto space = text.rfind(' ', width);
    if (space == std::string_view::npos || space == 0)
      space = std::min(text.find(' '), text.size());
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

void print_table(const std::vector<Line>& lines) {
  std::size_t name = 4, value = 5, origin = 6;
  for (const Line& line : lines) {
    name = std::max(name, line.row.name.size());
    value = std::max(value, std::min<std::size_t>(line.value.size(), 24));
    origin = std::max(origin, line.origin.size());
  }
  const auto print = [&](std::string_view a, std::string_view b, std::string_view c,
                         std::string_view meaning) {
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {}\n", a, name, b, value, c, origin, meaning);
  };
  print("NAME", "VALUE", "ORIGIN", "MEANING");
  const std::size_t indent = name + value + origin + 6;
  for (const Line& line : lines) {
    const std::string help =
        fmt::format("{} [{}; {}]", line.row.help, line.row.type, to_string(line.row.scope));
    std::string_view shown = line.value;
    std::string_view shown_origin = line.origin;
    std::string_view shown_name = line.row.name;
    for (const std::string& text : wrap(help, std::max<std::size_t>(kWidth - indent, 30))) {
      print(shown_name, shown, shown_origin, text);
      shown_name = shown = shown_origin = "";
    }
  }
}

void print_json(const std::vector<Line>& lines) {
  auto list = nlohmann::ordered_json::array();
  for (const Line& line : lines) {
    nlohmann::ordered_json entry;
    entry["name"] = line.row.name;
    entry["value"] = line.value;
    entry["origin"] = line.origin;
    entry["type"] = line.row.type;
    entry["default"] = line.row.built_in;
    entry["scope"] = to_string(line.row.scope);
    entry["meaning"] = line.row.help;
    list.push_back(std::move(entry));
  }
  // An environment may hold any bytes.
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string limit(std::size_t value, std::size_t none, const char* unit) {
  if (value >= none) return "any";
  if (value >= 1024 && value % 1024 == 0) return fmt::format("{} Ki{}", value / 1024, unit);
  return fmt::format("{}{}{}", value, *unit != 0 ? " " : "", unit);
}

// Which algorithm a collective uses: the first row that its group and its size fit.
void print_tuning(bool as_json) {
  const Forced forced = Forced::parse(read_settings().value("RANKLINK_ALGORITHM"));
  auto list = nlohmann::ordered_json::array();
  if (!as_json) {
    fmt::print("{:<15} {:<14} {:>6} {:>9}  {}\n", "COLLECTIVE", "MEMORY", "RANKS", "UP TO",
               "ALGORITHM");
  }
  for (const Tuning& row : tuning_table()) {
    const Algorithm* wanted = forced.find(row.collective);
    const bool is_forced = wanted != nullptr && fits(*wanted, row.shared);
    const std::string_view name = is_forced ? wanted->name : row.algorithm->name;
    const char* memory = row.shared ? "SharedBuffer" : "any pointers";
    if (as_json) {
      nlohmann::ordered_json entry;
      entry["collective"] = to_string(row.collective);
      entry["shared_buffer"] = row.shared;
      entry["ranks_up_to"] = nullptr;
      if (row.ranks < kAnyRanks) entry["ranks_up_to"] = row.ranks;
      entry["bytes_up_to"] = nullptr;
      if (row.bytes != kAnyBytes) entry["bytes_up_to"] = row.bytes;
      entry["algorithm"] = name;
      entry["needs_pull"] = row.algorithm->needs == Needs::pull;
      entry["forced"] = is_forced;
      list.push_back(std::move(entry));
      continue;
    }
    const bool conditional = !is_forced && row.algorithm->needs == Needs::pull;
    fmt::print("{:<15} {:<14} {:>6} {:>9}  {}{}\n", to_string(row.collective), memory,
               limit(static_cast<std::size_t>(row.ranks), kAnyRanks, ""),
               limit(row.bytes, kAnyBytes, "B"), name,
               is_forced     ? " (forced)"
               : conditional ? " (if all ranks can read each other's memory)"
                             : "");
  }
  if (as_json) fmt::print("{}\n", list.dump(2));
  if (as_json) return;
  fmt::print(
      "\nBytes are what a rank gives in all. To force one: RANKLINK_ALGORITHM=all_reduce=flat.\n"
      "Names:");
  std::string_view last;
  for (const Algorithm* algorithm : algorithm_table()) {
    const std::string_view collective = to_string(algorithm->collective);
    if (collective == last) {
      fmt::print(",{}", algorithm->name);
    } else {
      fmt::print(" {}={}", collective, algorithm->name);
    }
    last = collective;
  }
  fmt::print("\n");
}

}  // namespace

void add_settings(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand(
      "settings", "Show every setting, its value, and where that came from");
  const auto json = std::make_shared<bool>(false);
  const auto tuning = std::make_shared<bool>(false);
  command->footer(kExamples);
  command->add_flag("--json", *json, "as JSON");
  command->add_flag("--tuning", *tuning, "show instead which algorithm each collective uses");
  command->callback([json, tuning] {
    if (*tuning) {
      print_tuning(*json);
      return;
    }
    const auto lines = effective(read_settings());
    *json ? print_json(lines) : print_table(lines);
  });
}

}  // namespace ranklink
