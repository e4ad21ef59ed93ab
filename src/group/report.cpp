#include "group/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "group/timeline.h"

namespace ranklink {

void fill_report(Group::Impl& group) {
  Report& report = group.report;
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
        const std::string& mechanism = decision.verdicts[decision.route(from, to)].mechanism();
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
  rebase(report.timeline);
}

void warn_of_slow_routes(const Report& report) {
  // Rank 0 speaks for all; a setting that asked for it needs no warning.
  if (report.rank != 0) return;
  for (const SettingReport& setting : report.settings) {
    if (setting.name == "RANKLINK_MECHANISM" && setting.value == "none") return;
  }
  std::size_t slow = 0;
  const RouteReport* first = nullptr;
  for (const RouteReport& route : report.routes) {
    if (route.route != "stream") continue;
    ++slow;
    if (first == nullptr) first = &route;
  }
  if (first == nullptr) return;
  std::string why;
  for (const Verdict& verdict : first->verdicts) {
    if (verdict.yes || verdict.cause.empty()) continue;
    why = fmt::format(" ({}: {}; remedy: {})", verdict.mechanism, verdict.cause, verdict.remedy);
    break;
  }
  log(LogLevel::warn,
      "{} of {} routes share no memory and go through sockets, which is several times slower; the "
      "first is from rank {} to rank {}{}",
      slow, report.routes.size() - static_cast<std::size_t>(report.size), first->from, first->to,
      why);
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
  return document.dump();
}

}  // namespace ranklink
