#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autopsy/oom.h"
#include "autopsy/process_end.h"
#include "autopsy/rank_end.h"
#include "base/deadline.h"
#include "rendezvous/control_page.h"
#include "rendezvous/frame.h"
#include "rendezvous/messages.h"
#include "rendezvous/passing.h"
#include "rendezvous/server.h"

namespace ranklink {

/// The job as the server knows it: who sits where, which round is open, who has left or ended, and
/// why it failed. Sends through hooks and owns no socket. Not thread-safe.
class Membership {
 public:
  struct Hooks {
    std::function<void(int rank, FrameType, SharedBytes, std::vector<SharedFd>)> send;
    /// To every rank that has proved the secret, seated or not.
    std::function<void(SharedBytes error)> abort_all;
    /// `2 connections were refused, the last from 10.0.0.9: ...`, or nothing.
    std::function<std::string()> strangers;
  };

  struct Setup {
    std::optional<int> size;
    std::vector<int> pids;
    Reducer reduce;
    bool reports_ends = false;
  };

  Membership(Setup setup, Hooks hooks);

  /// A proven process claims a seat, on a socket that was made for `made_for` (-1: for anyone).
  /// Returns whether it got it; if not, the job has failed.
  bool claim(const Claim& claim, int made_for, const Member& member, int pid);
  void on_frame(int rank, Frame frame);
  /// The rank's connection has closed.
  void on_close(int rank);
  void report_end(int rank, const Error& reason);
  void fail(const Error& reason);

  /// Does what is due, and says when to come back.
  Deadline tick();

  const std::optional<Error>& failure() const { return failure_; }
  /// The rank in whose process this server is, or -1.
  int holder() const { return holder_; }
  std::string step_of(int rank) const;
  /// Watches this page in place of its own: the one that ranks of this host share when they came by
  /// TCP. `page.size()` is the job's.
  void use_page(ControlPage page);
  /// What the rank could say of its crash, if it crashed.
  std::optional<Crash> crash_of(int rank) const;

 private:
  struct Seat {
    std::optional<Claim> claim;
    Member member;
    ProcessWatch process;
    std::string step;
    bool left = false;
    std::optional<Error> ended;           ///< before it was seated
    std::optional<Deadline> derived_due;  ///< when its lost connection counts as its death
    std::string derived_cause;
  };
  struct Round {
    std::string name;
    std::vector<Bytes> rows;
    std::vector<bool> arrived;
    std::size_t count = 0;
    Deadline deadline = Deadline::never();
  };

  void know_size(int size);
  void refuse_claim(ErrorCode code, const Claim& claim, std::string cause, std::string remedy);
  void seat_all();
  void on_submit(int rank, Submission submission);
  bool has_left(int rank) const;
  void suspect(int rank, std::string cause);
  /// How a rank that died ended, as far as it can be told from here.
  RankEnd end_of(int rank);
  void fail_for_end(const RankEnd& end);
  void fail_for_missing(const std::string& step, const std::vector<int>& missing);
  std::string describe(int rank) const;
  Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  const Seat& seat(int rank) const { return seats_[static_cast<std::size_t>(rank)]; }

  std::vector<Seat> seats_;
  Setup setup_;
  Hooks hooks_;
  std::optional<ControlPage> page_;
  OomWatch oom_;
  std::optional<Passing> passing_;
  std::optional<Claim> first_claim_;
  int claimed_ = 0;
  bool seated_ = false;
  int holder_ = -1;  ///< the rank in whose process this server is
  Deadline join_deadline_ = Deadline::never();
  std::uint32_t next_round_ = 0;
  std::optional<Round> round_;
  std::optional<Error> failure_;
};

}  // namespace ranklink
