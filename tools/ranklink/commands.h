#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"

namespace ranklink {

/// What all commands share while the command line is read.
struct CommandLine {
  CLI::App& app;
  /// What stands behind `--`: a program and its arguments.
  std::vector<std::string> behind_dashes;
  bool has_dashes = false;
  /// The process's exit code; a command sets it.
  int exit_code = 0;
};

inline constexpr int kUsageExitCode = 2;

/// One command each, in a file of its own, added to the command line by main.
void add_run(CommandLine& line);
void add_check(CommandLine& line);
void add_check_rank(CommandLine& line);
void add_bench(CommandLine& line);
void add_bench_rank(CommandLine& line);
void add_settings(CommandLine& line);

/// What the command's --help shows behind `Usage:`.
void set_usage(CLI::App& command, const std::string& usage);

/// The defaults and the environment. Throws Error for what can't be used in it.
Settings read_settings();

/// Options that stand for settings, as in `--join-timeout 30s` for RANKLINK_JOIN_TIMEOUT.
class SettingOptions {
 public:
  /// Adds the option; its help is the setting's.
  void add(CLI::App& command, const std::string& option, const std::string& setting);
  /// Sets what was given. Throws Error.
  void apply(Settings& settings) const;

 private:
  struct Given {
    std::string setting;
    std::string value;
    CLI::Option* option = nullptr;
  };
  // CLI11 writes into `value`, so the entries must not move.
  std::vector<std::unique_ptr<Given>> given_;
};

/// The program to launch: behind `--`, or from the first word on that isn't an option. Throws
/// Error(bad_argument).
std::vector<std::string> program_of(const CommandLine& line, const CLI::App& command);

/// Prints an error and its remedy to stderr.
void print_error(const std::exception& error);
/// 2 for errors of usage and settings, else 1.
int exit_code_of(const std::exception& error);

}  // namespace ranklink
