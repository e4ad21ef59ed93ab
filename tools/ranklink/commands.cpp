#include "commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.h"

namespace ranklink {
namespace {

class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("Usage: {}\n", usage_);
  }

 private:
  std::string usage_;
};

}  // namespace

void set_usage(CLI::App& command, const std::string& usage) {
  command.formatter(std::make_shared<UsageFormatter>(usage));
}

Settings read_settings() {
  Settings settings;
  settings.read_environment(environ);
  return settings;
}

void SettingOptions::add(CLI::App& command, const std::string& option, const std::string& setting) {
  for (const SettingRow& row : setting_table()) {
    if (row.name != setting) continue;
    Given& given = *given_.emplace_back(std::make_unique<Given>());
    given.setting = setting;
    std::string help(row.help);
    if (!row.built_in.empty()) help += fmt::format(" (default: {})", row.built_in);
    given.option = command.add_option(option, given.value, help)->type_name(std::string(row.type));
    return;
  }
}

void SettingOptions::apply(Settings& settings) const {
  for (const auto& given : given_) {
    if (given->option->count() > 0) {
      settings.set(given->setting, given->value, Origin::command_line);
    }
  }
}

std::vector<std::string> program_of(const CommandLine& line, const CLI::App& command) {
  std::vector<std::string> words = command.remaining();
  if (!words.empty() && (words[0].starts_with('-') || line.has_dashes)) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string word = words[0].substr(0, words[0].find('='));
    const auto near = nearest(word, {names.begin(), names.end()});
    throw Error(
        {.code = ErrorCode::bad_argument,
         .cause = fmt::format("`{}` has no option or argument '{}'", command.get_name(), words[0]),
         .remedy = near ? fmt::format("did you mean {}?", *near)
                        : fmt::format("see `ranklink {} --help`", command.get_name())});
  }
  if (line.has_dashes) words = line.behind_dashes;
  if (words.empty()) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = "no program to launch was named",
                 .remedy = fmt::format("name it behind --, as in: ranklink {} -n 2 -- ./program",
                                       command.get_name())});
  }
  return words;
}

void print_error(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (!ours) {
    fmt::print(stderr, "ranklink: {}\n", error.what());
    return;
  }
  const Error bare = with(*ours, [](Error::Parts& parts) { parts.remedy.clear(); });
  fmt::print(stderr, "ranklink: {}\n", bare.what());
  if (!ours->remedy().empty()) fmt::print(stderr, "  remedy: {}\n", ours->remedy());
}

int exit_code_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (!ours) return 1;
  switch (ours->code()) {
    case ErrorCode::setting_unknown:
    case ErrorCode::setting_invalid:
    case ErrorCode::bad_argument:
      return kUsageExitCode;
    default:
      return 1;
  }
}

}  // namespace ranklink
