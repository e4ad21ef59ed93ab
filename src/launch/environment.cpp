#include "launch/environment.h"

#include <algorithm>
#include <cstdio>

namespace ranklink {

RankEnvironment::RankEnvironment(char** inherited,
                                 const std::vector<std::pair<std::string, std::string>>& common,
                                 const std::vector<std::string_view>& removed) {
  const auto is_replaced = [&](std::string_view name) {
    return name == "RANK" || name == "LOCAL_RANK" ||
           std::find(removed.begin(), removed.end(), name) != removed.end() ||
           std::any_of(common.begin(), common.end(),
                       [&](const auto& c) { return c.first == name; });
  };
  for (char** entry = inherited; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair = *entry;
    if (!is_replaced(pair.substr(0, pair.find('=')))) pointers_.push_back(*entry);
  }
  owned_.reserve(common.size());  // the pointers below must not move
  for (const auto& [name, value] : common) {
    owned_.push_back(name + "=" + value);
    pointers_.push_back(owned_.back().data());
  }
  pointers_.push_back(rank_);
  pointers_.push_back(local_rank_);
  pointers_.push_back(nullptr);
}

char** RankEnvironment::for_rank(int rank) {
  std::snprintf(rank_, sizeof rank_, "RANK=%d", rank);
  std::snprintf(local_rank_, sizeof local_rank_, "LOCAL_RANK=%d", rank);
  return pointers_.data();
}

}  // namespace ranklink
