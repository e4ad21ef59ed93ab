#include "group/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace ranklink {

Report make_report(const Group::Impl& group) {
  Report report = group.world->report;
  const Surroundings& around = *group.world->around;
  const Decision& decision = group.world->decision;
  report.rank = group.rank;
  report.size = group.size();
  for (const int rank : group.circle.members) {
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
  for (const int from : group.circle.members) {
    for (const int to : group.circle.members) {
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
    const Setting& setting = group.world->settings.get(row.name);
    if (setting.origin == Origin::unset) continue;
    report.settings.push_back({std::string(row.name), row.secret ? "(set)" : setting.value,
                               std::string(to_string(setting.origin))});
  }
  return report;
}

void warn_of_slow_routes(const Group::Impl& group) {
  // Rank 0 speaks for all; a setting that asked for it needs no warning.
  if (group.rank != 0 || group.world->settings.value("RANKLINK_MECHANISM") == "none") return;
  const Decision& decision = group.world->decision;
  std::size_t slow = 0;
  std::string first;
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      if (from == to || find_mechanism(decision.mechanism(from, to)).maps) continue;
      ++slow;
      // Of a pair, one direction may work, and say nothing.
      for (const VerdictMatrix& matrix : decision.verdicts) {
        const Verdict& verdict = matrix.at(from, to);
        if (!first.empty() || verdict.yes || verdict.cause.empty()) continue;
        first = fmt::format("the first no is from rank {} to rank {} ({}: {}; remedy: {})", from,
                            to, verdict.mechanism, verdict.cause, verdict.remedy);
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
