#include "exchange/introduction.h"

#include <fmt/format.h>

#include <map>

namespace ranklink {
namespace {

constexpr std::size_t kMaxSettings = 256;
constexpr std::size_t kMaxEndpoints = 64;

}  // namespace

Bytes Introduction::encode() const {
  Writer w;
  ranklink::encode(facts, w);
  w.put(static_cast<std::uint32_t>(settings.size()));
  for (const Setting& s : settings) {
    w.text(s.name);
    w.text(s.value);
    w.text(s.origin);
  }
  w.put(static_cast<std::uint32_t>(endpoints.size()));
  for (const std::string& endpoint : endpoints) w.text(endpoint);
  return w.take();
}

Introduction Introduction::decode(ByteView bytes) {
  Reader r(bytes);
  Introduction i;
  i.facts = decode_facts(r);
  const std::size_t settings = r.count(12);
  if (settings > kMaxSettings) Reader::fail("too many settings");
  for (std::size_t n = 0; n < settings; ++n) {
    Setting s;
    s.name = r.text(128);
    s.value = r.text(4096);
    s.origin = r.text(64);
    i.settings.push_back(std::move(s));
  }
  const std::size_t endpoints = r.count(4);
  if (endpoints > kMaxEndpoints) Reader::fail("too many endpoints");
  for (std::size_t n = 0; n < endpoints; ++n) i.endpoints.push_back(r.text(4352));
  r.end();
  return i;
}

const std::string& Introduction::setting(std::string_view name) const {
  static const std::string none;
  for (const Setting& s : settings) {
    if (s.name == name) return s.value;
  }
  return none;
}

Introduction introduce(const Facts& facts, const Settings& settings,
                       const std::vector<std::string>& endpoints) {
  Introduction i{.facts = facts, .settings = {}, .endpoints = endpoints};
  for (const SettingRow& row : setting_table()) {
    if (row.secret || row.scope == SettingScope::internal) continue;
    const auto& setting = settings.get(row.name);
    if (setting.origin == Origin::unset) continue;
    i.settings.push_back(
        {std::string(row.name), setting.value, std::string(to_string(setting.origin))});
  }
  return i;
}

void check_agreement(const std::vector<Introduction>& ranks) {
  std::string table;
  std::string first_name;
  for (const SettingRow& row : setting_table()) {
    if (row.scope != SettingScope::must_agree) continue;
    // By value and origin, the ranks that hold it.
    std::map<std::pair<std::string, std::string>, std::vector<int>> held;
    std::map<std::string, int> values;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const Introduction::Setting& s : ranks[rank].settings) {
        if (s.name != row.name) continue;
        held[{s.value, s.origin}].push_back(static_cast<int>(rank));
        ++values[s.value];
      }
    }
    if (values.size() < 2) continue;
    if (first_name.empty()) first_name = row.name;
    for (const auto& [what, who] : held) {
      table += fmt::format("{}{}={} on rank{} {} (from: {})", table.empty() ? "" : "; ", row.name,
                           what.first, who.size() > 1 ? "s" : "", fmt::join(who, ","), what.second);
    }
  }
  if (table.empty()) return;
  throw Error({.code = ErrorCode::settings_disagree,
               .step = "inspect",
               .cause = table,
               .remedy = fmt::format("give {} the same value on all ranks", first_name)});
}

}  // namespace ranklink
