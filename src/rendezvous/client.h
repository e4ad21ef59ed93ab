#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autopsy/crash_watch.h"
#include "autopsy/process_end.h"
#include "autopsy/rank_end.h"
#include "base/deadline.h"
#include "base/secret.h"
#include "rendezvous/control_page.h"
#include "rendezvous/frame.h"
#include "rendezvous/messages.h"
#include "rendezvous/server.h"

namespace ranklink {

/// Proves the secret to the server behind `fd`, and has it proved. Throws Error(secret_mismatch)
/// when a side doesn't know it, and others when the server goes away or doesn't answer in time.
FrameConnection shake_hands(Fd fd, const Secret& secret, Deadline deadline);

/// A rank's side of the rendezvous. Every call that waits throws the job's Error as soon as the job
/// has failed, whoever failed it. Used by one thread at a time.
class Client {
 public:
  Client(FrameConnection connection, Secret secret, Claim claim);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  /// Leaves, if leave() hasn't been called.
  ~Client();

  /// Claims the seat and waits for all others to do so.
  const Seating& take_seat(Deadline deadline);
  const Seating& seating() const { return seating_; }
  int rank() const { return claim_.rank; }
  int size() const { return claim_.size; }
  /// The page that came with the seat, or this rank's own.
  ControlPage& page() { return *page_; }
  /// Uses a page that a peer shares.
  void adopt_page(ControlPage page);

  /// The step that this rank is in from now on.
  void enter(const std::string& step);
  const std::string& step() const { return step_; }

  /// Hands in this rank's row of a round and waits for what the round gives. All ranks call the
  /// same rounds in the same order.
  Bytes submit(const std::string& round, Bytes row, Deadline deadline);

  /// Gives a descriptor to peers that are seated locally, as this rank is; without one, tells them
  /// not to wait for it.
  void post(std::uint32_t tag, const std::vector<int>& peers, SharedFd fd);
  /// Asks for a stream to each of these peers.
  void broker(std::uint32_t tag, const std::vector<int>& peers);
  /// What came from a peer: an empty descriptor if it had none to give (`withheld`), or if this
  /// process is at its limit of open files.
  using Take = std::function<void(int peer, Fd fd, bool withheld)>;
  /// Waits for what each of `peers` has posted, or for a stream to each; `take` is called with each
  /// as it comes.
  void collect(std::uint32_t tag, std::set<int> peers, const Take& take, Deadline deadline);

  /// Tells all ranks that this one can't go on. Returns the reason that stands for all of them:
  /// this one, or one that another rank published first.
  Error fail(const Error& error);
  /// Leaves as intended; nobody is told that it failed.
  void leave();
  /// Throws the job's Error if it has failed; never waits.
  void check();
  /// The Error that the job has failed with, as far as this rank knows.
  bool failed() const { return failure_.has_value(); }
  const std::optional<Error>& failure() const { return failure_; }
  /// A peer that left as intended.
  bool has_left(int rank) const;
  /// How this rank's process reaches the server; for poll(). -1 once it is lost.
  int fd() const;
  /// The process that serves the rendezvous, as this one sees it.
  void watch_holder(ProcessWatch process) { holder_ = std::move(process); }
  /// How the process of a rank that died ended, as far as it can be told from here.
  RankEnd end_of(int rank) const;

  /// The Error that the job failed with, or what `derive` says if none is known within 50 ms. For a
  /// rank that has noticed that a peer is gone. Publishes what it returns. `final`: nobody will
  /// know more, so it isn't waited for.
  Error best_reason(const std::function<Error()>& derive, bool final = false);
  /// A launcher watches all ranks, and will say how one ended.
  bool is_launched() const { return seating_.holder < 0; }

 private:
  Frame next_frame(Deadline deadline, const char* awaited);
  bool dispatch(Frame& frame);
  void receive_all();
  [[noreturn]] void throw_failure(const Error& error);
  /// The server is gone: goes over to its successor, or throws.
  void server_lost();
  bool go_over();
  Error holder_left() const;

  FrameConnection connection_;
  Secret secret_;
  Claim claim_;
  Seating seating_;
  bool seated_ = false;
  bool left_ = false;
  bool server_closing_ = false;  ///< it said goodbye
  bool gone_over_ = false;
  std::string step_ = "join";
  std::unique_ptr<ControlPage> page_;
  std::unique_ptr<LivenessBeacon> beacon_;
  std::unique_ptr<CrashWatch> crash_watch_;
  ProcessWatch holder_;  ///< the process that serves the rendezvous, if it is on this host
  std::uint32_t next_round_ = 0;
  std::deque<Frame> results_;
  std::deque<Frame> passed_;
  std::set<int> peers_left_;
  std::optional<Error> failure_;
};

}  // namespace ranklink
