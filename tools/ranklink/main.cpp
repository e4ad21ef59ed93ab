#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "commands.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  ranklink run -n 4 -- ./train             start 4 ranks of ./train
  ranklink run -n 2 --isolate all -- id    the same in namespaces of their own
  ranklink settings                        what can be set, what is set, and where

Each command has a --help of its own.)";

int run_command(int argc, char** argv) {
  CLI::App app("Brings up a group of accelerator processes and shares their memory", "ranklink");
  app.set_version_flag("--version", "ranklink " RANKLINK_VERSION);
  app.footer(kExamples);
  app.require_subcommand(1);

  ranklink::CommandLine line{app};
  std::vector<std::string> words(argv + 1, argv + argc);
  // Taken off before anything is read: what stands behind it is not for us.
  const auto dashes = std::find(words.begin(), words.end(), "--");
  line.has_dashes = dashes != words.end();
  if (line.has_dashes) line.behind_dashes.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());

  ranklink::add_run(line);
  ranklink::add_check(line);
  ranklink::add_check_rank(line);
  ranklink::add_bench(line);
  ranklink::add_bench_rank(line);
  ranklink::add_settings(line);
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : ranklink::kUsageExitCode;
  }
  return line.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const std::exception& error) {
    ranklink::print_error(error);
    return ranklink::exit_code_of(error);
  }
}
