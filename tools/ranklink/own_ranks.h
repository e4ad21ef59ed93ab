#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "launch/launcher.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// How a command launches ranks of its own: this program, with these words, whose messages the
/// command reads.
LaunchOptions own_ranks(int size, const SettingOptions& settings, const std::string& isolate,
                        const std::vector<std::string>& words);

/// Launches them, after `first`. Errors of usage are thrown; others are the result's failure, also
/// those because of which nothing was started.
LaunchResult launch_own(const LaunchOptions& options, const std::function<void()>& first = {});

/// The pipe by which such a rank tells its launcher what it has found.
class MessagesToLauncher {
 public:
  MessagesToLauncher();
  void send(const nlohmann::json& message) const;

 private:
  int fd_ = -1;
};

/// An error as documents show it.
nlohmann::json error_json(const Error& error);

}  // namespace ranklink
