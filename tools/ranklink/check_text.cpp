#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "check.h"

namespace ranklink {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestMatrix = 8;

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.1f} GB/s", bytes_per_second / 1e9);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string short_name(const json& route) {
  const auto kind = route["route"].get<std::string>();
  return kind == "mapped" ? route["mechanism"].get<std::string>() : kind;
}

std::string ranks_text(const json& document) {
  std::string text = "Ranks\n";
  for (const json& rank : document["ranks"]) {
    std::vector<std::string> shared = rank["shares_with_rank_0"];
    std::string note = "reference for the others";
    if (rank["rank"] != 0) {
      note = shared.empty()       ? "shares no namespace with rank 0"
             : shared.size() == 6 ? "shares all namespaces with rank 0"
                                  : fmt::format("shares {} with rank 0", fmt::join(shared, ", "));
    }
    const auto container = rank["container"].get<std::string>();
    text += fmt::format("  {:>4}  pid {:<8} host {}  uid {}  {}{}\n", rank["rank"].get<int>(),
                        rank["pid"].get<int>(), rank["host"].get<std::string>(),
                        rank["uid"].get<int>(), note, container.empty() ? "" : ", in " + container);
  }
  return text;
}

std::string matrix_text(const json& document) {
  const auto size = document["size"].get<std::size_t>();
  std::string text = "Routes (row: from, column: to)\n      ";
  for (std::size_t to = 0; to < size; ++to) text += fmt::format("  {:<26}", to);
  text += "\n";
  for (std::size_t from = 0; from < size; ++from) {
    text += fmt::format("  {:>4}", from);
    for (std::size_t to = 0; to < size; ++to) {
      const json& route = document["routes"][from * size + to];
      std::string cell = short_name(route);
      if (route["bandwidth"].is_number()) {
        cell += fmt::format(" {:.1f} GB/s {:.1f} us", route["bandwidth"].get<double>() / 1e9,
                            route["latency"].get<double>() * 1e6);
      }
      text += fmt::format("  {:<26}", from == to ? "-" : cell);
    }
    text += "\n";
  }
  return text;
}

// For groups too large for a matrix: how many routes of each kind, and what was measured of them.
std::string summary_text(const json& document) {
  struct Kind {
    std::size_t count = 0;
    std::vector<double> bandwidths;
  };
  std::map<std::string, Kind> kinds;
  for (const json& route : document["routes"]) {
    if (route["from"] == route["to"]) continue;
    Kind& kind = kinds[short_name(route)];
    ++kind.count;
    if (route["bandwidth"].is_number()) kind.bandwidths.push_back(route["bandwidth"]);
  }
  std::string text = "Routes\n";
  for (auto& [name, kind] : kinds) {
    text += fmt::format("  {:<10} {} pairs", name, kind.count);
    if (!kind.bandwidths.empty()) {
      std::sort(kind.bandwidths.begin(), kind.bandwidths.end());
      text += fmt::format(", {} of {} measured (median)",
                          rate_text(kind.bandwidths[kind.bandwidths.size() / 2]),
                          kind.bandwidths.size());
    }
    text += "\n";
  }
  return text;
}

// Each distinct no once, with the pairs that it concerns.
std::string verdicts_text(const json& document) {
  struct No {
    std::vector<std::string> pairs;
    std::string remedy;
  };
  std::map<std::string, No> refusals;
  std::set<std::string> worked;
  for (const json& route : document["routes"]) {
    for (const json& verdict : route["verdicts"]) {
      const auto mechanism = verdict["mechanism"].get<std::string>();
      if (verdict["yes"] == true) worked.insert(mechanism);
      const auto cause = verdict["cause"].get<std::string>();
      if (verdict["yes"] == true || cause.empty()) continue;
      No& no = refusals[fmt::format("{}: {}", mechanism, cause)];
      no.pairs.push_back(fmt::format("{}->{}", route["from"].get<int>(), route["to"].get<int>()));
      no.remedy = verdict["remedy"].get<std::string>();
    }
  }
  std::string text =
      fmt::format("Mechanisms that worked: {}\n",
                  worked.empty() ? "none" : fmt::format("{}", fmt::join(worked, ", ")));
  for (auto& [cause, no] : refusals) {
    const std::size_t all = no.pairs.size();
    if (all > 8) no.pairs.resize(8);
    text += fmt::format("  no  {}\n      between {}{}\n      remedy: {}\n", cause,
                        fmt::join(no.pairs, " "),
                        all > 8 ? fmt::format(" and {} more", all - 8) : "", no.remedy);
  }
  return text;
}

std::string steps_text(const json& document) {
  struct Step {
    double first = 0;
    double last = 0;
    double longest = 0;
    int slowest = 0;
  };
  std::vector<std::pair<std::string, Step>> steps;
  for (const json& entry : document["timeline"]) {
    const auto name = entry["step"].get<std::string>();
    auto found = std::find_if(steps.begin(), steps.end(), [&](auto& s) { return s.first == name; });
    const double start = entry["start_ms"];
    const double end = entry["end_ms"];
    if (found == steps.end()) found = steps.insert(steps.end(), {name, {start, end, -1, 0}});
    Step& step = found->second;
    step.first = std::min(step.first, start);
    step.last = std::max(step.last, end);
    if (end - start > step.longest) {
      step.longest = end - start;
      step.slowest = entry["rank"];
    }
  }
  std::string text = "Steps (ms since the first rank began)\n";
  for (const auto& [name, step] : steps) {
    text += fmt::format("  {:<8} {:>9.2f} to {:>9.2f}   longest at rank {}: {:.2f}\n", name,
                        step.first, step.last, step.slowest, step.longest);
  }
  return text;
}

}  // namespace

std::string check_text(const nlohmann::json& document) {
  if (!document.contains("ranks")) return "";
  std::string text = ranks_text(document) + "\n";
  text +=
      document["ranks"].size() <= kLargestMatrix ? matrix_text(document) : summary_text(document);
  text += "\n" + verdicts_text(document) + "\n" + steps_text(document) + "\n";
  const json& sums = document["all_reduce"];
  if (!sums.empty()) {
    const bool right = std::all_of(sums.begin(), sums.end(), [](auto& s) { return s["right"]; });
    text += fmt::format("All-reduce from {} to {}: {}\n", size_text(sums.front()["bytes"]),
                        size_text(sums.back()["bytes"]), right ? "right on all ranks" : "WRONG");
  }
  text += fmt::format("Ready {:.1f} ms after the processes existed\n",
                      document["ready_ms"].get<double>());
  return text;
}

}  // namespace ranklink
