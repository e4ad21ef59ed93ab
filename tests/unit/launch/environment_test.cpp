#include "launch/environment.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ranklink {
namespace {

std::vector<std::string> list(char** environment) {
  std::vector<std::string> all;
  for (char** entry = environment; *entry != nullptr; ++entry) all.emplace_back(*entry);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(RankEnvironment, ReplacesAddsAndRemoves) {
  std::string path = "PATH=/bin", rank = "RANK=77", size = "WORLD_SIZE=9", gone = "GONE=1";
  char* inherited[] = {path.data(), rank.data(), size.data(), gone.data(), nullptr};
  RankEnvironment environment(inherited, {{"WORLD_SIZE", "2"}, {"NEW", "a=b"}}, {"GONE"});
  EXPECT_EQ(
      list(environment.for_rank(0)),
      (std::vector<std::string>{"LOCAL_RANK=0", "NEW=a=b", "PATH=/bin", "RANK=0", "WORLD_SIZE=2"}));
  EXPECT_EQ(list(environment.for_rank(123))[3], "RANK=123");
}

}  // namespace
}  // namespace ranklink
