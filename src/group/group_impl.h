#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/algorithm.h"
#include "group/connect.h"
#include "group/worker.h"
#include "group/world.h"
#include "ranklink/group.hpp"
#include "route/routes.h"

namespace ranklink {

/// A group that stands: all ranks of a job, or some of them.
class Group::Impl {
 public:
  /// `rank_here`: this process's, in the group.
  Impl(std::shared_ptr<World> shared, Circle circle, int rank_here);
  /// Ends what was started and still goes on; waits for no peer.
  ~Impl();

  std::shared_ptr<World> world;
  Circle circle;  ///< its members, and how they hand each other rows
  int rank = 0;   ///< this process's, in the group
  std::unique_ptr<Memory> segment;
  Links links;
  std::unique_ptr<Routes> routes;
  std::unique_ptr<Workspace> work;
  std::optional<Report> report;  ///< when somebody has asked

  int size() const { return static_cast<int>(circle.members.size()); }
  int rank_in_job(int member) const { return circle.members[static_cast<std::size_t>(member)]; }
  int me() const { return me_; }
  /// From when the routes are made.
  ControlPage& page() const { return *page_; }
  /// Counts the calls of this group; the same on all ranks.
  std::uint64_t sequence() const { return operation_.sequence; }
  std::uint64_t next_buffer() { return ++buffers_; }

  /// Does one call, in this thread.
  void run(const Call& call);
  Work start(const Call& call);

  /// Runs one call's body: names it for peers to see, and turns what goes wrong in it into the
  /// Error that all ranks report.
  template <typename Body>
  void operate(Collective collective, std::uint32_t tag, const Body& body) {
    begin(collective, tag);
    try {
      body();
      routes->end();
    } catch (...) {
      fail_operation();
    }
    page_->end_operation(me_, operation_);
  }
  /// As operate(), for what also uses the rendezvous: other groups of this process wait meanwhile.
  template <typename Body>
  void operate_alone(Collective collective, const Body& body) {
    if (world->forked()) refuse(collective);  // who held the lock isn't here
    settle_down();
    const std::lock_guard lock(world->mutex);
    operate(collective, 0, [&] {
      // Rounds are named after the step.
      world->client->enter(std::string(to_string(collective)));
      page_->begin_operation(me_, operation_);
      body(world->op_deadline());
    });
  }

  /// Waits until all that was started has ended.
  void settle_down();

  /// What the routes need; makes them.
  void make_routes();
  /// Once it is known what all ranks can do.
  void choose_algorithms() { choice_ = Choice(size(), world->pull, world->forced); }

 private:
  void begin(Collective collective, std::uint32_t tag);
  [[noreturn]] void refuse(Collective collective);
  [[noreturn]] void fail_operation();
  bool publish_primary();
  void execute(const Call& call);
  void check_peer(int peer, bool stream_open);
  [[noreturn]] void late(int peer, const char* awaited);
  [[noreturn]] void lost(int peer);
  [[noreturn]] void mismatch(int peer, std::uint32_t tag, std::uint32_t size, std::size_t expected);
  Error placed(const Error& error) const;
  std::string where() const;

  Operation operation_;
  std::uint64_t buffers_ = 0;
  int me_ = 0;  ///< rank in the job
  ControlPage* page_ = nullptr;
  Choice choice_;
  bool all_mapped_ = false;  ///< all pairs of the group, so it is the same on all ranks
  std::atomic<bool> closing_{false};
  int gone_ = -1;                   ///< the peer that was gone when it was last looked at
  std::unique_ptr<Worker> worker_;  ///< ends first: it uses all the rest
};

/// The tag of a call's messages: what ranks must agree on, but for the count.
std::uint32_t tag_of(const Call& call);
/// As in `all_reduce f32 sum`.
std::string describe_tag(std::uint32_t tag);

/// Throws Error(bad_argument) for more than memory holds.
std::size_t bytes_of_message(std::size_t count, DataType type);
/// Throws Error(bad_argument) for a call that no rank can do.
void check_call(const Call& call, int rank, int size);

}  // namespace ranklink
