#include "own_ranks.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "exchange/coordinator.h"

namespace ranklink {

LaunchOptions own_ranks(int size, const SettingOptions& settings, const std::string& isolate,
                        const std::vector<std::string>& words) {
  LaunchOptions options;
  options.size = size;
  options.settings = read_settings();
  settings.apply(options.settings);
  options.isolation = parse_isolation(isolate);
  // By its own name, so that people recognise it in a list of processes.
  options.argv = {std::filesystem::read_symlink("/proc/self/exe")};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.capture = true;
  options.reduce = Coordinator();
  return options;
}

LaunchResult launch_own(const LaunchOptions& options, const std::function<void()>& first) {
  try {
    if (first) first();
    return launch(options);
  } catch (const Error& error) {
    if (exit_code_of(error) == kUsageExitCode) throw;
    return {.exit_code = 1, .failure = error};
  }
}

MessagesToLauncher::MessagesToLauncher() {
  const Settings settings = read_settings();
  if (settings.is_set("RANKLINK_MESSAGE_FD")) {
    fd_ = std::stoi(settings.value("RANKLINK_MESSAGE_FD"));
  }
}

void MessagesToLauncher::send(const nlohmann::json& message) const {
  if (fd_ < 0) return;
  const std::string line = message.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno != EINTR) throw system_error("write to the launcher", errno);
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
}

nlohmann::json error_json(const Error& error) {
  return {{"code", to_string(error.code())},
          {"name", name_of(error.code())},
          {"rank", error.rank()},
          {"peer", error.peer()},
          {"step", error.step()},
          {"cause", error.cause()},
          {"remedy", error.remedy()},
          {"context", error.context()}};
}

}  // namespace ranklink
