#include "bench.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bench_plan.h"
#include "commands.h"
#include "inspect/facts.h"
#include "own_ranks.h"

namespace ranklink {
namespace {

using nlohmann::json;

constexpr const char* kExamples = R"(Examples:
  ranklink bench all_reduce                      2 ranks, sums of f32, from 8 bytes to 64 MiB
  ranklink bench all_reduce -n 4 --mechanism none    what would it cost without shared memory?
  ranklink bench all_gather -n 4 --shared        in a buffer that the ranks share: nothing is copied
  ranklink bench reduce_scatter --dtype bf16 --op avg --min 1M --max 1G --step-factor 4
  ranklink bench barrier -n 8                    how long ranks take to meet
  ranklink bench all_to_all --json | jq -c '.rows[] | [.size, .busbw]'

It prints what nccl-tests print. The size of all_gather and gather is that of the whole output; of
reduce_scatter, scatter and all_to_all that of one rank's whole input; of send_recv, where each rank
sends to the next and receives from the one before, that of one message. Sizes are rounded down to
whole elements for each rank. The time is that of one call: the mean over all calls, of the rank
where that is largest. algbw is size / time; busbw is what a link carries of it at best: algbw times
2(n-1)/n for all_reduce, (n-1)/n where there is a block a rank, 1 for the rest. 1 GB is 10^9 bytes.

#wrong counts elements, on all ranks, that differ from a reference: integers, min, max and what is
only moved must be the same to the bit; sums, products and averages may differ by what their type
allows from a result in f64.

Exit code: 0 if all ranks computed right, 1 if not (and why), 2 for bad usage.)";

struct BenchCommand {
  int size = 2;
  std::string isolate;
  bool json = false;
  BenchOptions what;
  SettingOptions settings;
};

// What a rank needs beside its buffers: its code, its part of the group, the reference.
constexpr std::uint64_t kBesideBuffers = 16u << 20;

// The killer of processes that are out of memory wouldn't say why.
void need_memory(const BenchPlan& plan, int ranks) {
  const Facts facts = inspect_process();
  std::uint64_t available = facts.memory_available;
  if (facts.memory_limit != 0) available = std::min(available, facts.memory_limit);
  const std::uint64_t each = plan.memory_of_rank(ranks) + kBesideBuffers;
  if (available == 0 || each <= available / static_cast<std::uint64_t>(ranks)) return;
  constexpr double kGiB = 1 << 30;
  throw Error(
      {.code = ErrorCode::memory_short,
       .cause = fmt::format("{} rank{} with buffers for {} need {:.1f} GiB; {:.1f} GiB may be used",
                            ranks, ranks == 1 ? "" : "s", binary_size_text(plan.sizes.back().bytes),
                            static_cast<double>(each) * ranks / kGiB,
                            static_cast<double>(available) / kGiB),
       .remedy = plan.in_place || !plan.kind->in_place
                     ? "use a smaller --max, or fewer ranks"
                     : "use a smaller --max, fewer ranks, or --in-place: one buffer a rank"});
}

std::size_t usable_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return std::thread::hardware_concurrency();
  return static_cast<std::size_t>(CPU_COUNT(&cores));
}

json machine() {
  utsname name{};
  ::uname(&name);
  std::string cpu = name.machine;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    cpu = line.substr(colon + 2);
    break;
  }
  return {{"host", name.nodename}, {"cpu", cpu}, {"cores", usable_cores()}};
}

// As it was typed, but for the path of the program.
std::string command_text() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text = "ranklink";
  std::string word;
  std::getline(file, word, '\0');
  while (std::getline(file, word, '\0')) text += " " + word;
  return text;
}

/// Puts together what the ranks send, and shows it as it comes.
class Presenter {
 public:
  Presenter(const BenchPlan& plan, const BenchCommand& given)
      : plan_(plan),
        ranks_(static_cast<std::size_t>(given.size)),
        text_(!given.json),
        terminal_(::isatty(STDERR_FILENO) != 0),
        pending_(plan.sizes.size()) {
    const BenchKind& kind = *plan.kind;
    document_ = {{"format", "ranklink-bench"}, {"version", 1},         {"command", command_text()},
                 {"collective", kind.name},    {"ranks", given.size},  {"shared", plan.shared},
                 {"in_place", plan.in_place},  {"machine", machine()}, {"routes", json::array()},
                 {"rows", json::array()},      {"wrong", nullptr},     {"average_busbw", nullptr}};
  }

  void take(const std::string& line) {
    const json message = json::parse(line, nullptr, false);
    if (!message.is_object()) return;
    if (message.contains("report")) {
      take_report(message["report"]);
    } else if (message.contains("row")) {
      take_row(message);
    }
    show_progress();
  }

  /// Returns the exit code.
  int finish(const LaunchResult& result) {
    erase_progress();
    document_["ok"] = result.exit_code == 0 && wrong() == 0;
    if (result.failure) document_["error"] = error_json(*result.failure);
    if (!text_) {
      std::fputs((document_.dump(2, ' ', false, json::error_handler_t::replace) + "\n").c_str(),
                 stdout);
    } else {
      if (!document_["rows"].empty()) std::fputs(bench_footer_text(document_).c_str(), stdout);
      std::fflush(stdout);
      if (result.failure) print_error(*result.failure);
    }
    if (result.failure && result.failure->code() == ErrorCode::interrupted) return result.exit_code;
    return document_["ok"] == true ? 0 : 1;
  }

 private:
  struct Pending {
    std::size_t ranks = 0;
    double seconds = 1e-12;  // not 0: rates are divided by it
    std::uint64_t wrong = 0;
  };

  std::uint64_t wrong() const {
    return document_["wrong"].is_null() ? 0 : document_["wrong"].get<std::uint64_t>();
  }

  void take_report(const json& report) {
    for (const json& route : report["routes"]) {
      if (route["from"] == route["to"]) continue;
      document_["routes"].push_back({{"from", route["from"]},
                                     {"to", route["to"]},
                                     {"route", route["route"]},
                                     {"mechanism", route["mechanism"]}});
    }
    show(bench_header_text(document_));
  }

  // A row is whole when all ranks have sent theirs: the slowest counts.
  void take_row(const json& message) {
    const std::size_t index = message["row"];
    if (index >= pending_.size()) return;
    Pending& pending = pending_[index];
    pending.seconds = std::max(pending.seconds, message["seconds"].get<double>());
    pending.wrong += message.value("wrong", std::uint64_t{0});
    if (++pending.ranks < ranks_) return;

    const BenchKind& kind = *plan_.kind;
    const BenchSize& size = plan_.sizes[index];
    const double algbw = static_cast<double>(size.bytes) / pending.seconds / 1e9;
    json row = {{"size", size.bytes},
                {"count", size.count},
                {"type", size.count == 0 ? "none" : to_string(plan_.type)},
                {"redop", kind.reduces ? to_string(plan_.op) : "none"},
                {"root", kind.rooted ? plan_.root : -1},
                {"iterations", message["iterations"]},
                {"time_us", pending.seconds * 1e6},
                {"algbw", algbw},
                {"busbw", algbw * plan_.bus_factor(static_cast<int>(ranks_))},
                {"wrong", nullptr}};
    if (plan_.check) {
      row["wrong"] = pending.wrong;
      document_["wrong"] = wrong() + pending.wrong;
    }
    show(bench_row_text(row));
    document_["rows"].push_back(std::move(row));
    if (size.bytes != 0) {
      double sum = 0;
      for (const json& each : document_["rows"]) sum += each["busbw"].get<double>();
      document_["average_busbw"] = sum / static_cast<double>(document_["rows"].size());
    }
  }

  void show(const std::string& text) {
    if (!text_) return;
    erase_progress();
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void show_progress() {
    const std::size_t done = document_["rows"].size();
    if (!terminal_ || done == pending_.size() || progress_ == done + 1) return;
    erase_progress();
    progress_ = done + 1;
    fmt::print(stderr, "measuring {} ... {}/{}", binary_size_text(plan_.sizes[done].bytes),
               progress_, pending_.size());
    std::fflush(stderr);
  }

  void erase_progress() {
    if (progress_ == 0) return;
    progress_ = 0;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }

  const BenchPlan& plan_;
  const std::size_t ranks_;
  const bool text_;
  const bool terminal_;
  std::vector<Pending> pending_;
  std::size_t progress_ = 0;  // the row that the line on the terminal names, from 1; 0: none stands
  json document_;
};

int bench(const BenchCommand& given) {
  const BenchPlan plan = given.what.plan(given.size);
  std::vector<std::string> words = given.what.words();
  words.insert(words.begin(), "bench-rank");
  LaunchOptions options = own_ranks(given.size, given.settings, given.isolate, words);
  Presenter presenter(plan, given);
  options.on_message = [&](int, const std::string& line) { presenter.take(line); };
  const LaunchResult result = launch_own(options, [&] { need_memory(plan, given.size); });
  return presenter.finish(result);
}

}  // namespace

void add_bench(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand(
      "bench", "Measure a collective by size, and check its results; a table as of nccl-tests");
  const auto given = std::make_shared<BenchCommand>();
  set_usage(*command, "ranklink bench COLLECTIVE [-n N] [OPTIONS]");
  command->footer(kExamples);
  command->add_option("-n,--ranks", given->size, "number of ranks (2)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  given->what.add(*command);
  command->add_flag("--json", given->json, "print one JSON document, when all is done");
  given->settings.add(*command, "--device", "RANKLINK_DEVICE");
  given->settings.add(*command, "--mechanism", "RANKLINK_MECHANISM");
  command
      ->add_option("--isolate", given->isolate,
                   "namespaces that each rank gets for its own: a list of pid, net, ipc, uts, "
                   "mnt, user; or all")
      ->type_name("LIST");
  given->settings.add(*command, "--join-timeout", "RANKLINK_JOIN_TIMEOUT");
  command->callback([&line, given] { line.exit_code = bench(*given); });
}

}  // namespace ranklink
