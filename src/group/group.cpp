#include "ranklink/group.hpp"

#include <fmt/format.h>

#include "collective/collectives.h"
#include "group/bring_up.h"
#include "group/group_impl.h"
#include "group/report.h"
#include "group/shared_buffer.h"

namespace ranklink {

Store::~Store() = default;

Group Group::join(const Options& options) { return Group(bring_up(options)); }

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  const Group gone(std::move(*this));  // its destructor knows what to do after a fork
  impl_ = std::move(other.impl_);
  return *this;
}
Group::~Group() {
  if (impl_ && impl_->forked()) static_cast<void>(impl_.release());  // all of it is the parent's
}

int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }
const Report& Group::report() const {
  fill_report(*impl_);
  return impl_->report;
}

void Group::all_reduce(std::span<float> data) {
  impl_->operate("all_reduce",
                 [&](Deadline deadline) { all_reduce_sum(*impl_->routes, data, deadline); });
}

void Group::barrier() {
  impl_->operate("barrier",
                 [&](Deadline deadline) { ranklink::barrier(*impl_->routes, deadline); });
}

void Group::fail(const std::string& cause, const std::string& remedy) {
  if (impl_->forked() || impl_->client->failed()) return;
  impl_->client->fail(Error({.code = ErrorCode::rank_failed,
                             .rank = impl_->rank(),
                             .step = impl_->client->page().step(impl_->rank()),
                             .cause = cause,
                             .remedy = remedy}));
}

SharedBuffer Group::make_shared_buffer(std::size_t size) {
  std::unique_ptr<SharedBuffer::Impl> buffer;
  impl_->operate("make_shared_buffer",
                 [&](Deadline deadline) { buffer = share_memory(*impl_, size, deadline); });
  return SharedBuffer(std::move(buffer));
}

void Group::Impl::operate(const char* name, const std::function<void(Deadline)>& body) {
  if (forked()) {
    throw Error(
        {.code = ErrorCode::group_closed,
         .rank = rank(),
         .step = name,
         .cause = fmt::format("this process (pid {}) was forked from the one that made the "
                              "group (pid {})",
                              ::getpid(), owner),
         .remedy = "use the group in the process that made it, or join one after the fork"});
  }
  if (client->failed()) {
    throw Error({.code = ErrorCode::group_closed,
                 .rank = client->failure()->rank(),
                 .step = name,
                 .cause = fmt::format("the group has failed before: {}", client->failure()->what()),
                 .remedy = "leave this group, and make a new one"});
  }
  client->enter(name);
  client->page().begin_operation(rank(), ++operations);
  try {
    body(op_deadline());
  } catch (const Error& error) {
    if (client->failed()) throw;
    Error full = with(error, [&](Error::Parts& p) {
      if (p.rank < 0) p.rank = rank();
      if (p.step.empty()) p.step = client->page().step(p.rank);
      if (p.context.empty()) {
        p.context = fmt::format("rank {} was in {}", rank(), client->page().step(rank()));
      }
    });
    // A broken stream is known by its end, a late peer by its silence: neither is the reason.
    if (error.code() == ErrorCode::connection_lost) lost(error.rank());
    if (error.code() == ErrorCode::op_timeout) throw client->best_reason([&] { return full; });
    throw client->fail(full);
  } catch (const std::exception& error) {
    throw client->fail(Error({.code = ErrorCode::rank_failed,
                              .rank = rank(),
                              .step = client->page().step(rank()),
                              .cause = error.what(),
                              .remedy = "look at what this process may use: memory, threads"}));
  }
  client->page().end_operation(rank());
}

void Group::Impl::check_peer(int peer, bool stream_open) {
  client->check();
  const bool died = client->page().died(peer);
  // Behind a stream that is still open the peer's last signals may be on their way: its end says.
  if (!died && (stream_open || !client->has_left(peer))) return;
  // It may have signalled before it went, so that the wait is about to end well: only a second look
  // at the signal, by the caller, may count its absence. See gone_.
  if (gone_ != peer) {
    gone_ = peer;
    return;
  }
  lost(peer);
}

// Derived from what is seen of the peer from here; a reason that says more may come within moments.
void Group::Impl::lost(int peer) {
  ControlPage& page = client->page();
  throw client->best_reason([&] {
    Error::Parts parts{.code = ErrorCode::connection_lost,
                       .rank = peer,
                       .step = page.step(peer),
                       .cause = fmt::format("the stream from rank {} closed", peer),
                       .remedy = "look at the output of that rank, and at what lies between",
                       .context = fmt::format("rank {} was in {}, waiting for rank {}", rank(),
                                              page.step(rank()), peer)};
    if (client->has_left(peer)) {
      parts.code = ErrorCode::rank_left;
      parts.step = page.step(rank());
      parts.cause = fmt::format("rank {} left the group while rank {} waits for it", peer, rank());
      parts.remedy = "call the same operations on all ranks before any leaves";
    } else if (page.died(peer)) {
      parts.code = ErrorCode::rank_died;
      parts.cause = "the kernel marked its liveness word: its process ended, how isn't known here";
      parts.remedy =
          "look at the output of that rank, and at the kernel's log for an "
          "out-of-memory kill";
    }
    return Error(std::move(parts));
  });
}

// Whom this rank waits for may itself wait for another: who hasn't come to this operation is to
// blame.
void Group::Impl::late(int peer, const char* awaited) {
  ControlPage& page = client->page();
  std::vector<int> missing;
  for (int other = 0; other < size(); ++other) {
    if (page.state(other) == ControlPage::State::alive &&
        page.operation(other) < page.operation(rank())) {
      missing.push_back(other);
    }
  }
  const int blamed = missing.empty() ? peer : missing.front();
  const auto where = [&](int other) {
    const std::string step = page.step(other);
    return fmt::format("rank {} is in {}", other, step.empty() ? "a step unknown here" : step);
  };
  std::string others = where(blamed);
  for (std::size_t i = 1; i < std::min<std::size_t>(missing.size(), 16); ++i) {
    others += "; " + where(missing[i]);
  }
  throw Error({.code = ErrorCode::op_timeout,
               .rank = blamed,
               .step = page.step(blamed),
               .cause = fmt::format("{} did not come in {} ({})", awaited,
                                    settings.value("RANKLINK_OP_TIMEOUT"), others),
               .remedy = "look at what that rank does, or give it more time (RANKLINK_OP_TIMEOUT)",
               .context = fmt::format("rank {} was in {}, waiting for rank {}", rank(),
                                      page.step(rank()), peer)});
}

}  // namespace ranklink
