#pragma once

#include <sys/signalfd.h>

#include <optional>
#include <string>
#include <vector>

#include "autopsy/oom.h"
#include "launch/ending.h"
#include "launch/launcher.h"
#include "launch/poller.h"
#include "launch/relay.h"
#include "launch/spawn.h"
#include "launch/strays.h"

namespace ranklink {

/// The launcher's loop: from the last rank's start to the last one's end.
class Job {
 public:
  Job(const LaunchOptions& options, RankProcesses& processes, Server& server, StrayKeeper& strays,
      const SignalIntake& signals, OomWatch& oom, Deadline run_deadline);

  /// Returns when no rank process is left.
  Judgement run();

 private:
  void handle(const Ready& ready);
  void rank_ended(int rank);

  void take_signals();
  void interrupted_by(int signal);
  void forward(int signal);
  void stop_and_continue();

  void act_on_time();
  void run_out_of_time();
  void warn_of_unkillable();
  Deadline next_wake() const;
  void end_strays();
  void intervene(const Error& why, int exit_code);
  /// `rank 3 (pid 123, state D) in step join`, for all that are left.
  std::string who_is_left() const;
  std::vector<pid_t> living_pids() const;

  const LaunchOptions& options_;
  RankProcesses& processes_;
  Server& server_;
  StrayKeeper& strays_;
  const SignalIntake& signals_;
  OomWatch& oom_;
  Deadline run_deadline_;
  Poller poller_;
  Relay relay_;

  std::size_t living_;
  JobEnd end_;
  EndSchedule schedule_;
  bool struck_ = false;  ///< the launcher has begun to end ranks itself
  bool failed_ = false;  ///< a rank has ended badly by itself
  bool out_of_time_ = false;
  int interrupts_ = 0;
  std::optional<Deadline::Clock::time_point> interrupted_at_;  ///< the first
  std::optional<Deadline::Clock::time_point> killed_at_;
  bool warned_ = false;
  bool given_up_ = false;
  bool children_ended_ = false;
  Deadline::Clock::time_point next_sweep_{};
};

}  // namespace ranklink
