#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/settings.h"
#include "inspect/facts.h"
#include "rendezvous/messages.h"

namespace ranklink {

/// What each rank tells all others before anything is tried.
struct Introduction {
  struct Setting {
    std::string name;
    std::string value;
    std::string origin;
  };

  Facts facts;
  std::vector<Setting> settings;       ///< those that concern a rank; secrets are left out
  std::vector<std::string> endpoints;  ///< where it can be met without the rendezvous

  Bytes encode() const;
  /// Throws Error(protocol_violation).
  static Introduction decode(ByteView bytes);
  const std::string& setting(std::string_view name) const;
};

Introduction introduce(const Facts& facts, const Settings& settings,
                       const std::vector<std::string>& endpoints);

/// Throws Error(settings_disagree) with a table of name, value, rank and origin when a setting that
/// must agree doesn't. Pure, so every rank would find the same.
void check_agreement(const std::vector<Introduction>& ranks);

/// A rank as mechanisms see it.
struct Party {
  int rank = 0;
  const Facts& facts;
  const Member& member;
};

}  // namespace ranklink
