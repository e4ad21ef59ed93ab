#include <fmt/format.h>

#include <set>
#include <string>

#include "bench.h"

namespace ranklink {
namespace {

using nlohmann::json;

std::string routes_text(const json& routes) {
  std::set<std::string> kinds;
  for (const json& route : routes) {
    const auto kind = route["route"].get<std::string>();
    kinds.insert(kind == "mapped" ? "mapped by " + route["mechanism"].get<std::string>() : kind);
  }
  return kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, ", "));
}

// As nccl-tests do: fewer digits behind the point the longer it takes.
std::string time_text(double us) {
  if (us >= 10000) return fmt::format("{:.0f}", us);
  return us >= 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.2f}", us);
}

}  // namespace

std::string bench_header_text(const json& document) {
  const json& machine = document["machine"];
  const auto ranks = document["ranks"].get<int>();
  const std::string where = document["shared"] == true     ? "shared buffer, in place"
                            : document["in_place"] == true ? "in place"
                                                           : "out of place";
  std::string text =
      fmt::format("# {}: {} rank{} on {} ({}, {} cores)\n# routes: {}\n#\n",
                  document["collective"].get<std::string>(), ranks, ranks == 1 ? "" : "s",
                  machine["host"].get<std::string>(), machine["cpu"].get<std::string>(),
                  machine["cores"].get<int>(), routes_text(document["routes"]));
  text += fmt::format("#{:>80}\n", where);
  const auto columns = [&](auto... names) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>9} {:>7} {:>7}", names...);
  };
  text +=
      columns("size", "count", "type", "redop", "root", "time", "algbw", "busbw") + "   #wrong\n";
  text += columns("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)") + "\n";
  return text;
}

std::string bench_row_text(const json& row) {
  const std::string wrong =
      row["wrong"].is_null() ? "N/A" : std::to_string(row["wrong"].get<std::uint64_t>());
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>9} {:>7.2f} {:>7.2f} {:>8}\n",
                     row["size"].get<std::uint64_t>(), row["count"].get<std::uint64_t>(),
                     row["type"].get<std::string>(), row["redop"].get<std::string>(),
                     row["root"].get<int>(), time_text(row["time_us"].get<double>()),
                     row["algbw"].get<double>(), row["busbw"].get<double>(), wrong);
}

std::string bench_footer_text(const json& document) {
  const json& wrong = document["wrong"];
  std::string text =
      fmt::format("# wrong: {}\n",
                  wrong.is_null() ? "not checked" : std::to_string(wrong.get<std::uint64_t>()));
  if (document["average_busbw"].is_number()) {
    text += fmt::format("# average busbw: {:.2f} GB/s\n", document["average_busbw"].get<double>());
  }
  return text;
}

}  // namespace ranklink
