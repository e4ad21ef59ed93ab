#include "check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "commands.h"
#include "inspect/facts.h"
#include "own_ranks.h"

namespace ranklink {
namespace {

constexpr const char* kExamples = R"(Examples:
  ranklink check                                two ranks, every mechanism, this machine as it is
  ranklink check -n 4 --isolate pid,net,ipc     as in four containers
  ranklink check --mechanism fd+pidfd           would this mechanism alone do?
  ranklink check --json | jq .routes            for programs; docs/report.md describes it

Exit code: 0 if all ranks came up and computed right, 1 if not (and why), 2 for bad usage.)";

struct CheckOptions {
  int size = 2;
  std::string isolate;
  std::string hold = "0s";
  bool json = false;
  SettingOptions settings;
};

// A quarter of what may be used, shared by all ranks.
std::size_t bytes_per_rank(int size) {
  const Facts facts = inspect_process();
  std::uint64_t memory = facts.memory_available;
  if (facts.memory_limit != 0) memory = std::min(memory, facts.memory_limit);
  if (memory == 0) memory = 1u << 30;
  return std::max<std::size_t>(4096, memory / 4 / static_cast<std::size_t>(size));
}

// What all ranks sent, as one document.
nlohmann::json merge(const std::vector<nlohmann::json>& from_ranks, const LaunchResult& result,
                     double ready_ms) {
  nlohmann::json document = {{"format", "ranklink-check"}, {"version", 1}};
  const auto reporter = std::find_if(from_ranks.begin(), from_ranks.end(),
                                     [](const auto& r) { return r.contains("report"); });
  if (reporter != from_ranks.end()) {
    document.update(reporter->at("report"));
    document["format"] = "ranklink-check";
    document.erase("rank");
    document["timeline"] = nlohmann::json::array();
    for (const auto& sent : from_ranks) {
      if (!sent.contains("figures")) continue;
      document["timeline"].insert(document["timeline"].end(), sent["timeline"].begin(),
                                  sent["timeline"].end());
      for (const auto& figure : sent["figures"]) {
        const std::size_t index =
            figure["from"].get<std::size_t>() * from_ranks.size() + figure["to"].get<std::size_t>();
        document["routes"][index]["bandwidth"] = figure["bandwidth"];
        document["routes"][index]["latency"] = figure["latency"];
      }
    }
    for (auto& route : document["routes"]) {
      route.emplace("bandwidth", nullptr);
      route.emplace("latency", nullptr);
    }
    document["all_reduce"] = reporter->value("all_reduce", nlohmann::json::array());
    document["ready_ms"] = ready_ms;
  }
  document["ok"] = result.exit_code == 0;
  document["processes_ms"] = result.processes_ms;
  if (result.failure) document["error"] = error_json(*result.failure);
  return document;
}

int check(const CheckOptions& given) {
  const auto hold = parse_duration(given.hold);
  if (!hold) {
    throw Error({.code = ErrorCode::setting_invalid,
                 .cause = fmt::format("--hold {} is not a duration", given.hold),
                 .remedy = "write it as in 250ms, 30s or 5m"});
  }
  LaunchOptions options = own_ranks(
      given.size, given.settings, given.isolate,
      {"check-rank", "--hold", given.hold, "--bytes", std::to_string(bytes_per_rank(given.size))});
  if (options.settings.get("RANKLINK_TRIALS").origin == Origin::built_in) {
    options.settings.set("RANKLINK_TRIALS", "all", Origin::program);
  }

  using Clock = std::chrono::steady_clock;
  std::vector<nlohmann::json> from_ranks(static_cast<std::size_t>(given.size));
  Clock::time_point started;
  Clock::time_point ready;
  std::size_t done = 0;
  const auto since_start = [&] {
    return std::chrono::duration<double, std::milli>(ready - started).count();
  };
  options.on_started = [&] { started = Clock::now(); };
  options.on_message = [&](int rank, const std::string& line) {
    const auto message = nlohmann::json::parse(line, nullptr, false);
    if (!message.is_object()) return;
    if (message.contains("ready")) {
      ready = Clock::time_point(std::chrono::nanoseconds(message["ready"].get<std::int64_t>()));
      return;
    }
    from_ranks[static_cast<std::size_t>(rank)].update(message);
    // A group that is held is shown while it stands, not after it.
    if (!message.contains("figures") || ++done < from_ranks.size() || hold->count() == 0) return;
    const auto document = merge(from_ranks, {}, since_start());
    std::fputs((given.json ? document.dump(2) + "\n" : check_text(document)).c_str(), stdout);
    std::fflush(stdout);
  };
  const LaunchResult result = launch_own(options);
  const bool shown = done == from_ranks.size() && hold->count() != 0;
  const auto document = merge(from_ranks, result, since_start());
  if (given.json) {
    if (!shown || result.failure) std::fputs((document.dump(2) + "\n").c_str(), stdout);
  } else {
    if (!shown) std::fputs(check_text(document).c_str(), stdout);
    if (result.failure) print_error(*result.failure);
  }
  if (result.exit_code == 0) return 0;
  return result.failure && result.failure->code() == ErrorCode::interrupted ? result.exit_code : 1;
}

}  // namespace

void add_check(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand(
      "check", "Bring ranks up here, try every mechanism between every pair, and verify");
  const auto given = std::make_shared<CheckOptions>();
  set_usage(*command, "ranklink check [-n N] [OPTIONS]");
  command->footer(kExamples);
  command->add_option("-n,--ranks", given->size, "number of ranks (2)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  given->settings.add(*command, "--device", "RANKLINK_DEVICE");
  given->settings.add(*command, "--mechanism", "RANKLINK_MECHANISM");
  command
      ->add_option("--isolate", given->isolate,
                   "namespaces that each rank gets for its own: a list of pid, net, ipc, uts, "
                   "mnt, user; or all")
      ->type_name("LIST");
  given->settings.add(*command, "--join-timeout", "RANKLINK_JOIN_TIMEOUT");
  command->add_flag("--json", given->json, "print one JSON document");
  command
      ->add_option("--hold", given->hold,
                   "keep the group up for so long, to look at it from outside; Ctrl-C ends it")
      ->type_name("DURATION");
  command->callback([&line, given] { line.exit_code = check(*given); });
}

}  // namespace ranklink
