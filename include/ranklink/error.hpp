#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "ranklink/visibility.hpp"

namespace ranklink {

/// Stable numbers of errors, printed as `RL1203`. The table with meanings is error_codes.def.
enum class ErrorCode : std::uint16_t {
#define RANKLINK_ERROR(number, name, meaning) name = number,
#include "ranklink/error_codes.def"
#undef RANKLINK_ERROR
};

/// What went wrong: who, where, why, and what to do.
///
/// `rank` is the rank that failed, which is often another than the one that reports; -1 means that
/// no single rank did. An Error is immutable and can be read from several threads.
class RANKLINK_PUBLIC Error : public std::exception {
 public:
  struct Parts {
    ErrorCode code;
    int rank = -1;        ///< the rank that failed, or -1
    int peer = -1;        ///< the other rank of a pair, or -1
    std::string step;     ///< where in bring-up, or in which collective, it failed
    std::string cause;    ///< in the system's own words: call, errno, code
    std::string remedy;   ///< what a person can do
    std::string context;  ///< what the reporting rank was itself doing or waiting for
  };

  explicit Error(Parts parts);

  ErrorCode code() const noexcept { return state_->parts.code; }
  int rank() const noexcept { return state_->parts.rank; }
  int peer() const noexcept { return state_->parts.peer; }
  const std::string& step() const noexcept { return state_->parts.step; }
  const std::string& cause() const noexcept { return state_->parts.cause; }
  const std::string& remedy() const noexcept { return state_->parts.remedy; }
  const std::string& context() const noexcept { return state_->parts.context; }
  const Parts& parts() const noexcept { return state_->parts; }

  /// One line: `RL1206 duplicate_rank: rank 1, step join: CAUSE. Remedy: REMEDY (CONTEXT)`
  const char* what() const noexcept override { return state_->text.c_str(); }

 private:
  struct State {
    Parts parts;
    std::string text;
  };
  std::shared_ptr<const State> state_;  // shared, so that copying an exception can't throw
};

/// `RL1203`
RANKLINK_PUBLIC std::string to_string(ErrorCode code);
/// `secret_mismatch`; empty for a number that the table doesn't have.
RANKLINK_PUBLIC std::string_view name_of(ErrorCode code);
/// The table's meaning; empty for a number that the table doesn't have.
RANKLINK_PUBLIC std::string_view meaning_of(ErrorCode code);

}  // namespace ranklink
