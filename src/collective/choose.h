#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/algorithm.h"

namespace ranklink {

/// One row of the table of measured crossovers: of its collective, the first row whose limits hold
/// what is asked for. The same on all ranks, since all ask the same.
struct Tuning {
  Collective collective;
  bool shared;        ///< for calls on a SharedBuffer
  int ranks;          ///< at most this many
  std::size_t bytes;  ///< at most this many, of what a rank gives in all
  const Algorithm* algorithm;
};

std::span<const Tuning> tuning_table();
/// Whether an algorithm can be forced on calls with a SharedBuffer, or on those without.
bool fits(const Algorithm& algorithm, bool shared);
inline constexpr int kAnyRanks = 1 << 20;
inline constexpr std::size_t kAnyBytes = ~std::size_t{0};

/// Algorithms that a user has forced, by collective: the setting RANKLINK_ALGORITHM.
class Forced {
 public:
  /// `auto`, or a list as in `all_reduce=flat,barrier=dissemination`. Throws
  /// Error(setting_invalid).
  static Forced parse(std::string_view text);
  const Algorithm* find(Collective collective) const {
    return by_[static_cast<std::size_t>(collective)];
  }

 private:
  const Algorithm* by_[16] = {};
};

/// What is wrong with such a text; nothing if it can be used.
std::optional<std::string> refuse_algorithms(std::string_view text);

/// The rows of the table that concern a group, found once.
class Choice {
 public:
  Choice() = default;
  /// `pull`: whether all ranks can copy from each other's memory. Throws
  /// Error(mechanism_unavailable) if one that needs it is forced and they can't.
  Choice(int ranks, bool pull, const Forced& forced);

  /// The algorithm for a call of `bytes`. Direct ones are only for calls on a SharedBuffer, where
  /// all routes are mapped.
  const Algorithm& of(Collective collective, std::size_t bytes, bool direct) const {
    for (const Row& row : rows_[direct ? 1 : 0][static_cast<std::size_t>(collective)]) {
      if (bytes <= row.bytes) return *row.algorithm;
    }
    refuse(collective);
  }

 private:
  struct Row {
    std::size_t bytes = 0;
    const Algorithm* algorithm = nullptr;
  };
  [[noreturn]] static void refuse(Collective collective);

  std::array<std::array<std::vector<Row>, 16>, 2> rows_;
};

}  // namespace ranklink
