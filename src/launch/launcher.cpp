#include "launch/launcher.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "autopsy/oom.h"
#include "base/error.h"
#include "base/secret.h"
#include "base/socket.h"
#include "launch/child.h"
#include "launch/environment.h"
#include "launch/host_state.h"
#include "launch/job.h"
#include "launch/spawn.h"
#include "launch/strays.h"

namespace ranklink {
namespace {

// Keeps a port for what the ranks' own program may open (torch's store does): held, so that two
// jobs never get the same, but free for a listener that sets SO_REUSEADDR, as servers do.
class PortReservation {
 public:
  PortReservation() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (!socket_) throw system_error("socket", errno);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
      throw system_error("bind to a free port", errno);
    }
    // Only now: with it, bind could choose a port that another launcher has reserved in this way.
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }

  std::uint16_t number() const { return local_port(socket_.get()); }

 private:
  Fd socket_;
};

void check(const LaunchOptions& options) {
  if (options.size < 1) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = fmt::format("{} ranks can't be launched", options.size),
                 .remedy = "ask for 1 or more"});
  }
  if (options.argv.empty() || options.argv[0].empty()) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = "no program to launch was named",
                 .remedy = "name it behind --, as in: ranklink run -n 2 -- ./program"});
  }
}

std::vector<std::pair<std::string, std::string>> common_environment(const LaunchOptions& options,
                                                                    const std::string& secret,
                                                                    std::uint16_t port) {
  const std::string size = std::to_string(options.size);
  std::vector<std::pair<std::string, std::string>> common = {
      {"WORLD_SIZE", size},         {"LOCAL_WORLD_SIZE", size},
      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port)},
      {"RANKLINK_SECRET", secret},  {"RANKLINK_LAUNCHER_FD", std::to_string(kSocketFd)},
  };
  if (options.capture) common.emplace_back("RANKLINK_MESSAGE_FD", std::to_string(kMessageFd));
  for (const SettingRow& row : setting_table()) {
    if (row.scope == SettingScope::internal || row.scope == SettingScope::launcher) continue;
    // Where ranks meet and what they prove there is the launcher's own business.
    if (row.name == "RANKLINK_RENDEZVOUS" || row.name == "RANKLINK_SECRET") continue;
    const Setting& setting = options.settings.get(row.name);
    if (setting.origin == Origin::command_line || setting.origin == Origin::program) {
      common.emplace_back(row.name, setting.value);
    }
  }
  return common;
}

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  check(options);
  const auto started = Deadline::Clock::now();
  const Deadline run_deadline = options.settings.deadline("RANKLINK_RUN_TIMEOUT");

  const StandardStreams streams;
  const DescriptorLimit limit;
  const SignalIntake signals;
  StrayKeeper strays;
  OomWatch oom;
  const PortReservation port;
  // The ranks read the secret as text, as they read one that a user sets.
  const std::string secret = Secret::random().reveal_hex();
  RankEnvironment environment(environ, common_environment(options, secret, port.number()),
                              {"RANKLINK_RENDEZVOUS", "RANKLINK_MESSAGE_FD"});

  RankProcesses processes =
      spawn_ranks(options, environment, limit, signals,
                  run_deadline.earlier(options.settings.deadline("RANKLINK_JOIN_TIMEOUT")));
  LaunchResult result;
  result.processes_ms =
      std::chrono::duration<double, std::milli>(Deadline::Clock::now() - started).count();

  if (options.on_started) options.on_started();

  // Starts a thread, so not before the last clone.
  Server::Options serve{.secret = Secret::from_text(secret),
                        .size = options.size,
                        .reduce = options.reduce,
                        .reports_ends = true};
  for (RankProcess& rank : processes.ranks) {
    serve.connections.push_back(std::move(rank.socket));
    serve.pids.push_back(rank.pid);
  }
  Server server(std::move(serve));

  Job job(options, processes, server, strays, signals, oom, run_deadline);
  Judgement judgement = job.run();
  result.exit_code = judgement.exit_code;
  result.failure = std::move(judgement.failure);
  return result;
}

}  // namespace ranklink
