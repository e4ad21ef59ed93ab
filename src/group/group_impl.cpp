#include "group/group_impl.h"

#include <fmt/format.h>
#include <sched.h>

#include "base/error.h"
#include "base/log.h"
#include "group/shared_buffer.h"

namespace ranklink {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

// A call on a SharedBuffer as one on this rank's own memory, for algorithms that know no other.
Call on_local_memory(const Call& call, int rank) {
  Call local = call;
  local.shared = nullptr;
  std::byte* base = call.shared->local().data() + call.shared_offset;
  std::byte* block = base + call.count * size_of(call.type) * static_cast<std::size_t>(rank);
  local.input = call.collective == Collective::all_gather ? block : base;
  local.output = call.collective == Collective::reduce_scatter ? block : base;
  return local;
}

std::size_t bytes_of(const Call& call, int size) {
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::all_to_all:
      return bytes * static_cast<std::size_t>(size);
    default:
      return bytes;
  }
}

}  // namespace

Group::Impl::Impl(std::shared_ptr<World> shared, Circle c, int rank_here)
    : world(std::move(shared)), circle(std::move(c)), rank(rank_here), me_(rank_in_job(rank)) {
  operation_.group = static_cast<std::uint16_t>(circle.number);
}

Group::Impl::~Impl() {
  closing_ = true;
  if (!worker_) return;
  const bool unfinished = !worker_->idle();
  worker_->close(Error({.code = ErrorCode::group_closed,
                        .rank = me(),
                        .cause = "the group was left before this call was begun",
                        .remedy = "wait for what was started before the group goes"}));
  worker_.reset();
  if (!unfinished || page().failed()) return;
  // Others wait in these calls, and this process may stay in the job by another group.
  const std::lock_guard lock(world->mutex);
  try {
    world->client->fail(Error({.code = ErrorCode::rank_left,
                               .rank = me(),
                               .step = page().step(me()),
                               .cause = fmt::format("rank {} left a group in which calls that it "
                                                    "had started were still going on",
                                                    me()),
                               .remedy = "wait for what was started before the group goes"}));
  } catch (const std::exception& error) {
    log(LogLevel::warn, "what was left unfinished could not be told: {}", error.what());
  }
}

void Group::Impl::make_routes() {
  page_ = &world->page();
  const Decision& decision = world->decision;
  std::vector<Routes::Peer> peers(circle.members.size());
  int here = 1;  // ranks that may run on this one's cores
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const int peer = circle.members[i];
    if (peer == me()) continue;
    const std::string& mechanism = decision.mechanism(me(), peer);
    Link& link = links[mechanism][peer];
    if (find_mechanism(mechanism).maps) {
      if (!link.memory) Reader::fail("a decision for memory that isn't mapped");
      peers[i].segment = link.memory->data();
      peers[i].pid = world->around->party(peer).facts.pid;
      ++here;
    } else {
      if (!link.stream) Reader::fail("a decision for a stream that doesn't stand");
      peers[i].stream = std::make_unique<Stream>(std::move(link.stream),
                                                 SegmentLayout(size()).bank_bytes(), 0, peer);
    }
  }
  all_mapped_ = true;
  for (const int a : circle.members) {
    for (const int b : circle.members) {
      if (a != b && !find_mechanism(decision.mechanism(a, b)).maps) all_mapped_ = false;
    }
  }
  // Losing trials are released.
  for (auto& [name, by_peer] : links) {
    std::erase_if(by_peer, [&, &mechanism = name](const auto& entry) {
      return decision.mechanism(me(), entry.first) != mechanism;
    });
  }
  routes = std::make_unique<Routes>(
      Routes::Setup{.rank = rank,
                    .members = circle.members,
                    .own = segment->data(),
                    .peers = std::move(peers),
                    .crowded = here > usable_cores()},
      page(),
      Routes::Watch{
          .check = [this](int peer, bool open) { check_peer(peer, open); },
          .late = [this](int peer, const char* what) { late(peer, what); },
          .lost = [this](int peer) { lost(rank_in_job(peer)); },
          .mismatch = [this](int peer, std::uint32_t tag, std::uint32_t bytes,
                             std::size_t expected) { mismatch(peer, tag, bytes, expected); }});
  work = std::make_unique<Workspace>(*routes);
}

void Group::Impl::run(const Call& call) {
  check_call(call, rank, size());
  settle_down();
  execute(call);
}

Work Group::Impl::start(const Call& call) {
  check_call(call, rank, size());
  // The caller's arrays needn't last.
  struct Owned {
    Call call;
    std::vector<std::size_t> counts;
    std::vector<Transfer> transfers;
  };
  auto owned = std::make_shared<Owned>(Owned{call, {}, {}});
  if (call.collective == Collective::exchange) {
    owned->transfers.assign(call.transfers, call.transfers + call.count);
    owned->call.transfers = owned->transfers.data();
  }
  if (call.collective == Collective::all_to_all_v) {
    const auto n = static_cast<std::size_t>(size());
    for (const auto* numbers :
         {call.send_counts, call.send_offsets, call.recv_counts, call.recv_offsets}) {
      owned->counts.insert(owned->counts.end(), numbers, numbers + n);
    }
    owned->call.send_counts = owned->counts.data();
    owned->call.send_offsets = owned->counts.data() + n;
    owned->call.recv_counts = owned->counts.data() + 2 * n;
    owned->call.recv_offsets = owned->counts.data() + 3 * n;
  }
  if (world->forked()) refuse(call.collective);  // the worker isn't in this process
  if (!worker_) worker_ = std::make_unique<Worker>(world->mark);
  return Work(worker_->start([this, owned] { execute(owned->call); }));
}

void Group::Impl::settle_down() {
  if (worker_ && !world->forked() && !worker_->idle()) worker_->wait_until_idle();
}

void Group::Impl::execute(const Call& call) {
  const bool direct = call.shared != nullptr && all_mapped_;
  const Algorithm* algorithm = &choice_.of(call.collective, bytes_of(call, size()), direct);
  std::uint32_t tag = tag_of(call);
  if (call.shared != nullptr) {
    tag ^= resolve(*call.shared, *this, call.shared_offset, work->shared);
  }
  operate(call.collective, tag, [&] {
    if (call.shared == nullptr || algorithm->needs == Needs::shared_buffer) {
      algorithm->run(*work, call);
    } else {
      algorithm->run(*work, on_local_memory(call, rank));
    }
  });
}

void Group::Impl::begin(Collective collective, std::uint32_t tag) {
  if (world->forked() || page_->failed() || world->failed.load(std::memory_order_relaxed)) {
    refuse(collective);
  }
  operation_.collective = collective;
  // Messages between some ranks are not counted, so that the number is the same on all.
  if (collective != Collective::exchange) ++operation_.sequence;
  page_->begin_operation(me_, operation_);
  // A message that a call before should have taken is not taken for one of this call.
  if (collective != Collective::exchange) tag ^= operation_.sequence & 0xff;
  routes->begin(tag, world->op_timeout);
}

void Group::Impl::refuse(Collective collective) {
  const std::string name(to_string(collective));
  if (world->forked()) {
    throw Error(
        {.code = ErrorCode::group_closed,
         .rank = me(),
         .step = name,
         .cause = fmt::format("this process (pid {}) was forked from the one that made the "
                              "group (pid {})",
                              ::getpid(), world->owner),
         .remedy = "use the group in the process that made it, or join one after the fork"});
  }
  const std::lock_guard lock(world->mutex);
  Client& client = *world->client;
  world->failed = true;
  if (!client.failed()) client.check();
  throw Error({.code = ErrorCode::group_closed,
               .rank = client.failed() ? client.failure()->rank() : -1,
               .step = name,
               .cause = fmt::format("the group has failed before: {}",
                                    client.failed() ? client.failure()->what() : "see above"),
               .remedy = "leave this group, and make a new one"});
}

std::string Group::Impl::where() const {
  return fmt::format("rank {} was in {}", me(), page().step(me()));
}

// With the rank and the step that it is about, if it doesn't say.
Error Group::Impl::placed(const Error& error) const {
  return with(error, [&](Error::Parts& p) {
    if (p.rank < 0) p.rank = me();
    if (p.step.empty()) p.step = page().step(p.rank);
  });
}

void Group::Impl::fail_operation() {
  if (closing_) throw;  // the group goes: that is said by its leaving
  const bool published = publish_primary();
  const std::lock_guard lock(world->mutex);
  Client& client = *world->client;
  world->failed = true;
  try {
    throw;
  } catch (const Error& error) {
    // What this thread has published, it also tells ranks of other hosts.
    if (client.failed() && !published) throw;
    Error full = with(placed(error), [&](Error::Parts& p) {
      if (p.context.empty()) p.context = where();
    });
    // A broken stream is known by its end, a late peer by its silence: neither is the reason.
    if (error.code() == ErrorCode::connection_lost) lost(error.rank());
    if (error.code() == ErrorCode::op_timeout) throw client.best_reason([&] { return full; });
    throw client.fail(full);
  } catch (const std::exception& error) {
    throw client.fail(Error({.code = ErrorCode::rank_failed,
                             .rank = me(),
                             .step = page().step(me()),
                             .cause = error.what(),
                             .remedy = "look at what this process may use: memory, threads"}));
  }
}

// Another thread of this process may hold the client until it learns that the job has failed: it
// learns it from the control page. What is only derived waits for a better reason.
bool Group::Impl::publish_primary() {
  try {
    throw;
  } catch (const Error& error) {
    const bool derived =
        error.code() == ErrorCode::connection_lost || error.code() == ErrorCode::op_timeout;
    if (derived || page().failed()) return false;
    return page().publish_failure(me(),
                                  with(placed(error), [](Error::Parts& p) { p.context.clear(); }));
  } catch (const std::exception&) {
    return false;
  }
}

void Group::Impl::check_peer(int peer, bool stream_open) {
  if (closing_) {
    throw Error({.code = ErrorCode::group_closed,
                 .rank = me(),
                 .cause = "the group was left while this call was going on",
                 .remedy = "wait for what was started before the group goes"});
  }
  const int other = rank_in_job(peer);
  {
    // Another group of this process may be using the client, and would notice as well.
    const std::unique_lock lock(world->mutex, std::try_to_lock);
    if (!lock && !page().failed()) return;
    const std::lock_guard need(world->mutex);
    world->client->check();
    const bool died = page().died(other);
    // Behind a stream that is still open the peer's last messages may be on their way: its end
    // says.
    if (!died && (stream_open || !world->client->has_left(other))) return;
  }
  // It may have sent before it went, so that the wait is about to end well: only a second look for
  // the message, by the caller, may count its absence. See gone_.
  if (gone_ != other) {
    gone_ = other;
    return;
  }
  lost(other);
}

// Derived from what is seen of the peer from here; a reason that says more may come within moments.
void Group::Impl::lost(int other) {
  const std::lock_guard lock(world->mutex);
  Client& client = *world->client;
  const RankEnd end = client.end_of(other);
  const auto derive = [&] {
    Error::Parts parts{.code = ErrorCode::connection_lost,
                       .rank = other,
                       .step = page().step(other),
                       .cause = fmt::format("the stream from rank {} closed", other),
                       .remedy = "look at the output of that rank, and at what lies between",
                       .context = fmt::format("{}, waiting for rank {}", where(), other)};
    if (client.has_left(other)) {
      parts.code = ErrorCode::rank_left;
      parts.step = page().step(me());
      parts.cause = fmt::format("rank {} left the group while rank {} waits for it", other, me());
      parts.remedy = "call the same operations on all ranks before any leaves";
    } else if (page().died(other)) {
      return with(end.reason(), [&](Error::Parts& p) {
        p.step = parts.step;
        p.context = parts.context;
      });
    }
    return Error(std::move(parts));
  };
  throw client.best_reason(derive, end.is_known() && !client.is_launched());
}

// Whom this rank waits for may itself wait for another: who hasn't come to this call is to blame.
void Group::Impl::late(int peer, const char* awaited) {
  std::vector<int> missing;
  for (const int other : circle.members) {
    // A message is awaited from one rank only.
    if (other == me_ || operation_.collective == Collective::exchange) continue;
    const auto its = page().operation(other);
    const bool behind =
        !its || (its->group == operation_.group && its->sequence < operation_.sequence);
    if (page().state(other) == ControlPage::State::alive && behind) missing.push_back(other);
  }
  const int blamed = missing.empty() ? rank_in_job(peer) : missing.front();
  const auto place = [&](int other) {
    const std::string step = page().step(other);
    return fmt::format("rank {} is in {}", other, step.empty() ? "a step unknown here" : step);
  };
  std::string others = place(blamed);
  for (std::size_t i = 1; i < std::min<std::size_t>(missing.size(), 16); ++i) {
    others += "; " + place(missing[i]);
  }
  throw Error({.code = ErrorCode::op_timeout,
               .rank = blamed,
               .step = page().step(blamed),
               .cause = fmt::format("{} did not come in {} ({})", awaited,
                                    world->settings.value("RANKLINK_OP_TIMEOUT"), others),
               .remedy = "look at what that rank does, or give it more time (RANKLINK_OP_TIMEOUT)",
               .context = fmt::format("{}, waiting for rank {}", where(), rank_in_job(peer))});
}

void Group::Impl::mismatch(int peer, std::uint32_t tag, std::uint32_t bytes, std::size_t expected) {
  const std::uint32_t mine = routes->tag();
  std::string cause;
  if (tag >> 8 != mine >> 8) {
    cause = fmt::format("rank {} is in {}, rank {} in {}", rank_in_job(peer), describe_tag(tag),
                        me(), describe_tag(mine));
  } else if (bytes != expected) {
    cause = fmt::format(
        "ranks {} and {} are in {} with different counts: a message of {} bytes came in place of "
        "one of {}",
        rank_in_job(peer), me(), describe_tag(mine), bytes, expected);
  } else {
    cause = fmt::format(
        "ranks {} and {} are in {} with different counts or shared buffers, or one of them has "
        "skipped a call",
        rank_in_job(peer), me(), describe_tag(mine));
  }
  throw Error({.code = ErrorCode::call_mismatch,
               .rank = rank_in_job(peer),
               .peer = me(),
               .cause = std::move(cause),
               .remedy = "make the same calls on all ranks, in one order, with the same counts, "
                         "types and roots"});
}

}  // namespace ranklink
