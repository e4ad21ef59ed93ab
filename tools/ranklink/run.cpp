#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "commands.h"
#include "exchange/coordinator.h"
#include "launch/launcher.h"

namespace ranklink {
namespace {

constexpr const char* kExamples = R"(Examples:
  ranklink run -n 4 -- ./train --epochs 3
  ranklink run -n 2 --isolate pid,net,ipc -- python3 script.py
  ranklink run -n 8 --run-timeout 30m --mechanism fd+socket -- ./program

Each rank is a process of this machine and finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and RANKLINK_ settings in its environment; ranklink serves the rendezvous.
Rank 0 gets the standard input unless that is a terminal; the others read an empty one.
When a rank fails the others are ended, after a second in which they may end by themselves.
Ctrl-C goes to all ranks; a second one kills them.

Exit code: 0; that of the rank that failed first; 128 + the number of the signal that ended it, or
that ended this launcher; 124 when --run-timeout passed; 2 for bad usage.)";

struct RunOptions {
  int size = 1;
  std::string isolate;
  bool no_prefix = false;
  SettingOptions settings;
};

int run(const RunOptions& given, const CommandLine& line, const CLI::App& command) {
  LaunchOptions options;
  options.size = given.size;
  options.argv = program_of(line, command);
  options.settings = read_settings();
  given.settings.apply(options.settings);
  options.isolation = parse_isolation(given.isolate);
  options.prefix = !given.no_prefix;
  options.reduce = Coordinator();
  const LaunchResult result = launch(options);
  if (result.failure) print_error(*result.failure);
  return result.exit_code;
}

}  // namespace

void add_run(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand("run", "Start a program as a group of ranks");
  const auto given = std::make_shared<RunOptions>();
  set_usage(*command, "ranklink run -n N [OPTIONS] -- PROGRAM [ARGUMENTS]");
  command->footer(kExamples);
  command->prefix_command();
  command->add_option("-n,--ranks", given->size, "number of ranks")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->required();
  command
      ->add_option("--isolate", given->isolate,
                   "namespaces that each rank gets for its own: a list of pid, net, ipc, uts, "
                   "mnt, user; or all")
      ->type_name("LIST");
  given->settings.add(*command, "--run-timeout", "RANKLINK_RUN_TIMEOUT");
  given->settings.add(*command, "--join-timeout", "RANKLINK_JOIN_TIMEOUT");
  given->settings.add(*command, "--mechanism", "RANKLINK_MECHANISM");
  command->add_flag("--no-prefix", given->no_prefix,
                    "leave the ranks' output as it is, without [rank] before each line");
  command->callback([&line, command, given] { line.exit_code = run(*given, line, *command); });
}

}  // namespace ranklink
