#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranklink {

/// The environments of all ranks: the launcher's own, what all ranks get, and their two numbers.
class RankEnvironment {
 public:
  /// `inherited` holds NAME=VALUE and stays valid; `common` replaces what it names, `removed` is
  /// left out.
  RankEnvironment(char** inherited, const std::vector<std::pair<std::string, std::string>>& common,
                  const std::vector<std::string_view>& removed);
  RankEnvironment(const RankEnvironment&) = delete;
  RankEnvironment& operator=(const RankEnvironment&) = delete;

  /// For execve in a child; good until the next call.
  char** for_rank(int rank);

 private:
  std::vector<std::string> owned_;
  char rank_[32]{};
  char local_rank_[32]{};
  std::vector<char*> pointers_;
};

}  // namespace ranklink
