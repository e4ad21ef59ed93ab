#include "group/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace ranklink {

void fill_report(Group::Impl& group) {
  Report& report = group.report;
  if (!report.routes.empty()) return;
  const Surroundings& around = *group.around;
  const Decision& decision = group.decision;
  report.rank = group.rank();
  report.size = group.size();
  for (int rank = 0; rank < group.size(); ++rank) {
    const Party party = around.party(rank);
    const Facts& facts = party.facts;
    RankReport entry{.rank = rank,
                     .pid = facts.pid,
                     .host = facts.hostname,
                     .address = party.member.address,
                     .uid = facts.uid,
                     .container = facts.container,
                     .namespaces = {facts.namespaces.begin(), facts.namespaces.end()},
                     .shares_with_rank_0 = {}};
    for (const auto kind : shared_namespaces(around.ranks[0].facts, facts)) {
      entry.shares_with_rank_0.emplace_back(kind);
    }
    report.ranks.push_back(std::move(entry));
  }
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      RouteReport route{.from = from, .to = to, .route = "self", .mechanism = {}, .verdicts = {}};
      if (from != to) {
        const std::string& mechanism = decision.mechanism(from, to);
        route.route = find_mechanism(mechanism).maps ? "mapped" : "stream";
        route.mechanism = mechanism;
        for (const VerdictMatrix& matrix : decision.verdicts) {
          route.verdicts.push_back(matrix.at(from, to));
        }
      }
      report.routes.push_back(std::move(route));
    }
  }
  for (const SettingRow& row : setting_table()) {
    if (row.scope == SettingScope::internal || row.scope == SettingScope::launcher) continue;
    const Setting& setting = group.settings.get(row.name);
    if (setting.origin == Origin::unset) continue;
    report.settings.push_back({std::string(row.name), row.secret ? "(set)" : setting.value,
                               std::string(to_string(setting.origin))});
  }
}

void warn_of_slow_routes(const Group::Impl& group) {
  // Rank 0 speaks for all; a setting that asked for it needs no warning.
  if (group.rank() != 0 || group.settings.value("RANKLINK_MECHANISM") == "none") return;
  const Decision& decision = group.decision;
  std::size_t slow = 0;
  std::string first;
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      if (from == to || find_mechanism(decision.mechanism(from, to)).maps) continue;
      if (++slow > 1) continue;
      first = fmt::format("the first is from rank {} to rank {}", from, to);
      for (const VerdictMatrix& matrix : decision.verdicts) {
        const Verdict& verdict = matrix.at(from, to);
        if (verdict.yes || verdict.cause.empty()) continue;
        first +=
            fmt::format(" ({}: {}; remedy: {})", verdict.mechanism, verdict.cause, verdict.remedy);
        break;
      }
    }
  }
  if (slow == 0) return;
  log(LogLevel::warn,
      "{} of {} routes share no memory and go through sockets, which is several times slower; {}",
      slow, group.size() * (group.size() - 1), first);
}

std::string Report::to_json() const {
  using nlohmann::json;
  json document = {{"format", "ranklink-report"},
                   {"version", 1},
                   {"rank", rank},
                   {"size", size},
                   {"epoch", epoch},
                   {"digest", digest},
                   {"ready_ms", ready_ms}};
  json& ranks_json = document["ranks"] = json::array();
  for (const RankReport& r : ranks) {
    ranks_json.push_back({{"rank", r.rank},
                          {"pid", r.pid},
                          {"host", r.host},
                          {"address", r.address},
                          {"uid", r.uid},
                          {"container", r.container},
                          {"namespaces", r.namespaces},
                          {"shares_with_rank_0", r.shares_with_rank_0}});
  }
  json& routes_json = document["routes"] = json::array();
  for (const RouteReport& r : routes) {
    json verdicts = json::array();
    for (const Verdict& v : r.verdicts) {
      verdicts.push_back({{"mechanism", v.mechanism},
                          {"yes", v.yes},
                          {"tried", v.tried},
                          {"rank", v.rank},
                          {"cause", v.cause},
                          {"remedy", v.remedy}});
    }
    routes_json.push_back({{"from", r.from},
                           {"to", r.to},
                           {"route", r.route},
                           {"mechanism", r.mechanism},
                           {"verdicts", verdicts}});
  }
  json& steps_json = document["timeline"] = json::array();
  for (const StepReport& s : timeline) {
    steps_json.push_back(
        {{"rank", s.rank}, {"step", s.step}, {"start_ms", s.start_ms}, {"end_ms", s.end_ms}});
  }
  json& settings_json = document["settings"] = json::array();
  for (const SettingReport& s : settings) {
    settings_json.push_back({{"name", s.name}, {"value", s.value}, {"origin", s.origin}});
  }
  // Names of hosts and files need not be UTF-8.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ranklink
