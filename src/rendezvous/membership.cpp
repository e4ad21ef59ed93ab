#include "rendezvous/membership.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/error_codec.h"
#include "base/log.h"

namespace ranklink {
namespace {

// How long a lost connection waits for a reason that says more, and how often liveness words are
// looked at.
constexpr Milliseconds kGrace{30};
constexpr Milliseconds kTick{10};

// Empty if the process can't be seen.
std::string state_text(int pid) {
  switch (process_state(pid)) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in an uninterruptible wait";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return {};
  }
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

SharedBytes share(Bytes bytes) { return std::make_shared<const Bytes>(std::move(bytes)); }

}  // namespace

Membership::Membership(Setup setup, Hooks hooks)
    : setup_(std::move(setup)), hooks_(std::move(hooks)) {
  if (setup_.size) know_size(*setup_.size);
}

void Membership::know_size(int size) {
  seats_.resize(static_cast<std::size_t>(size));
  page_ = ControlPage::create(size);
  passing_.emplace(size, [this](int to, Bytes payload, std::vector<SharedFd> fds) {
    hooks_.send(to, FrameType::pass, share(std::move(payload)), std::move(fds));
  });
  for (std::size_t rank = 0; rank < setup_.pids.size() && rank < seats_.size(); ++rank) {
    seats_[rank].process = ProcessWatch(setup_.pids[rank]);
  }
}

void Membership::use_page(ControlPage page) {
  if (seats_.empty()) know_size(page.size());
  page_ = std::move(page);
  if (failure_) page_->publish_failure(page_->size(), *failure_);
}

void Membership::refuse_claim(ErrorCode code, const Claim& claim, std::string cause,
                              std::string remedy) {
  fail(Error({.code = code,
              .rank = claim.rank,
              .step = "join",
              .cause = std::move(cause),
              .remedy = std::move(remedy)}));
}

bool Membership::claim(const Claim& claim, int made_for, const Member& member, int pid) {
  if (failure_) return false;
  if (!claim.resume) {
    if (!first_claim_) first_claim_ = claim;
    join_deadline_ = join_deadline_.earlier(Deadline::after(Milliseconds(claim.timeout_ms)));
  }
  if (claim.version != RANKLINK_VERSION) {
    refuse_claim(ErrorCode::version_mismatch, claim,
                 fmt::format("{} runs ranklink {}, the rendezvous runs {}", claim.text(),
                             claim.version, RANKLINK_VERSION),
                 "run the same version of ranklink on all ranks");
    return false;
  }
  if (claim.size < 1 || claim.size > kMaxRanks) {
    refuse_claim(ErrorCode::size_mismatch, claim,
                 fmt::format("{} claims an impossible number of ranks", claim.text()),
                 fmt::format("set WORLD_SIZE to a number from 1 to {}", kMaxRanks));
    return false;
  }
  if (seats_.empty()) know_size(claim.size);
  const int size = static_cast<int>(seats_.size());
  if (claim.size != size) {
    refuse_claim(ErrorCode::size_mismatch, claim,
                 fmt::format("{} has come to a job of {} ranks{}", claim.text(), size,
                             first_claim_ && first_claim_->size == size
                                 ? fmt::format(", as {} said first", first_claim_->text())
                                 : ""),
                 "give all ranks the same WORLD_SIZE, and each job a secret and a rendezvous of "
                 "its own");
    return false;
  }
  if (claim.rank < 0 || claim.rank >= size) {
    refuse_claim(ErrorCode::rank_out_of_range, claim,
                 fmt::format("{}: ranks go from 0 to {}", claim.text(), size - 1),
                 "set RANK to a number below WORLD_SIZE");
    return false;
  }
  if (made_for >= 0 && claim.rank != made_for) {
    refuse_claim(ErrorCode::duplicate_rank, claim,
                 fmt::format("the launcher started this process as rank {}, and it claims: {}",
                             made_for, claim.text()),
                 "leave RANK as the launcher sets it");
    return false;
  }
  Seat& mine = seat(claim.rank);
  if (mine.claim) {
    refuse_claim(ErrorCode::duplicate_rank, claim,
                 fmt::format("claimed twice: by {}, and by {}", mine.claim->text(), claim.text()),
                 "give each process a RANK of its own; if one was restarted, restart all");
    return false;
  }
  mine.claim = claim;
  mine.member = member;
  mine.step = "join";
  if (pid > 0) {
    mine.process = ProcessWatch(pid);
  } else if (made_for < 0 && claim.host == host_name()) {
    // Perhaps of another pid namespace; then the number is nobody's here, or another's.
    mine.process = ProcessWatch(claim.pid, claim.start_time);
  }
  if (claim.process == process_token()) holder_ = claim.rank;
  ++claimed_;
  if (claim.resume) return true;
  for (int rank = 0; rank < size; ++rank) {
    if (seat(rank).ended) {
      fail(*seat(rank).ended);
      return true;
    }
  }
  if (claimed_ == size) seat_all();
  return true;
}

void Membership::seat_all() {
  seated_ = true;
  join_deadline_ = Deadline::never();
  Seating seating;
  seating.job = random_bytes<JobId>();
  seating.holder = holder_;
  for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
    seating.members.push_back(seat(rank).member);
    const auto& endpoints = seat(rank).claim->successor;
    if (seating.successor < 0 && !endpoints.empty()) {
      seating.successor = rank;
      seating.successor_endpoints = endpoints;
    }
  }
  const SharedBytes without = share(seating.encode());
  seating.has_page = true;
  const SharedBytes with = share(seating.encode());
  for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
    if (!seat(rank).member.local) {
      hooks_.send(rank, FrameType::seated, without, {});
      continue;
    }
    const int copy = ::fcntl(page_->fd(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      fail(system_error("fcntl F_DUPFD_CLOEXEC of the control page", errno));
      return;
    }
    hooks_.send(rank, FrameType::seated, with, {std::make_shared<const Fd>(copy)});
  }
}

void Membership::on_frame(int rank, Frame frame) {
  switch (frame.type) {
    case FrameType::submit:
      on_submit(rank, Submission::decode(frame.payload));
      return;
    case FrameType::post: {
      const Posting posting = Posting::decode(frame.payload);
      SharedFd fd;
      if (frame.fds.size() < frame.fds_announced) {
        return fail(
            Error({.code = ErrorCode::descriptors_short,
                   .rank = holder_,
                   .cause = "the process that serves the rendezvous is at its limit of open "
                            "files and could not take a descriptor to pass on",
                   .remedy = "raise its limit of open files (ulimit -n, LimitNOFILE=, "
                             "--ulimit nofile)"}));
      }
      if (!frame.fds.empty()) fd = std::make_shared<const Fd>(std::move(frame.fds.front()));
      passing_->post(rank, posting, fd);
      return;
    }
    case FrameType::broker:
      passing_->broker(rank, Posting::decode(frame.payload));
      return;
    case FrameType::pass_ack: {
      Reader reader(frame.payload);
      passing_->acknowledge(rank, reader.get<std::uint32_t>());
      return;
    }
    case FrameType::fail: {
      Reader reader(frame.payload);
      fail(decode_error(reader));
      return;
    }
    case FrameType::goodbye: {
      seat(rank).left = true;
      seat(rank).derived_due.reset();
      Writer who;
      who.put(static_cast<std::int32_t>(rank));
      const SharedBytes payload = share(who.take());
      for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
        if (other != rank && seat(other).claim && !seat(other).left) {
          hooks_.send(other, FrameType::left, payload, {});
        }
      }
      if (round_ && !failure_) fail_for_missing(round_->name, {rank});
      return;
    }
    default:
      Reader::fail("a frame that a seated rank doesn't send");
  }
}

void Membership::on_submit(int rank, Submission submission) {
  if (failure_) return;
  Seat& mine = seat(rank);
  mine.step = submission.round.substr(0, submission.round.find('/'));
  if (!seated_) Reader::fail("a round before all ranks are seated");
  if (!round_) {
    round_ = Round{};
    round_->name = submission.round;
    round_->rows.resize(seats_.size());
    round_->arrived.resize(seats_.size());
    for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
      if (seat(other).left) return fail_for_missing(round_->name, {other});
    }
  }
  // Whoever waits least is the first who would have to say that somebody is missing.
  round_->deadline = round_->deadline.earlier(Deadline::after(Milliseconds(submission.timeout_ms)));
  const auto index = static_cast<std::size_t>(rank);
  if (submission.index != next_round_ || submission.round != round_->name ||
      round_->arrived[index]) {
    fail(
        Error({.code = ErrorCode::protocol_violation,
               .rank = rank,
               .step = mine.step,
               .cause = fmt::format("rank {} is in round {} '{}' while others are in {} '{}'", rank,
                                    submission.index, submission.round, next_round_, round_->name),
               .remedy = "call the same group operations in the same order on all ranks"}));
    return;
  }
  round_->arrived[index] = true;
  round_->rows[index] = std::move(submission.row);
  if (++round_->count < seats_.size()) return;
  const Round whole = std::move(*round_);
  round_.reset();
  Writer result;
  result.put(next_round_++);
  try {
    result.blob(setup_.reduce(whole.name, whole.rows));
  } catch (const Error& error) {
    fail(error);
    return;
  }
  const SharedBytes payload = share(result.take());
  for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
    hooks_.send(other, FrameType::result, payload, {});
  }
}

void Membership::on_close(int rank) {
  if (!has_left(rank)) suspect(rank, "its connection to the rendezvous closed");
}

// A goodbye is on the control page before it comes through the socket.
bool Membership::has_left(int rank) const {
  return seat(rank).left || (page_ && page_->state(rank) == ControlPage::State::left);
}

void Membership::suspect(int rank, std::string cause) {
  Seat& who = seat(rank);
  if (failure_ || who.derived_due || who.left) return;
  who.derived_due = Deadline::after(kGrace);
  who.derived_cause = std::move(cause);
}

std::optional<Crash> Membership::crash_of(int rank) const {
  if (!page_ || rank < 0 || rank >= page_->size()) return std::nullopt;
  return page_->crash(rank);
}

RankEnd Membership::end_of(int rank) {
  RankEnd end{
      .rank = rank, .wait_status = seat(rank).process.wait_status(), .crash = crash_of(rank)};
  if (end.signal() == SIGKILL) end.oom = oom_.news();
  return end;
}

void Membership::fail_for_end(const RankEnd& end) {
  const Seat& who = seat(end.rank);
  fail(with(end.reason(), [&](Error::Parts& p) {
    p.step = step_of(end.rank);
    p.cause = end.is_known() ? fmt::format("pid {}: {}", who.claim->pid, p.cause)
                             : fmt::format("pid {}: {}; how it ended isn't known here",
                                           who.claim->pid, who.derived_cause);
  }));
}

void Membership::report_end(int rank, const Error& reason) {
  if (rank < 0 || rank >= static_cast<int>(seats_.size()) || has_left(rank)) return;
  const Error full = with(reason, [&](Error::Parts& p) {
    if (p.step.empty()) p.step = step_of(rank);
  });
  if (seat(rank).claim) return fail(full);
  // A program that never joins may end as it likes, as long as nobody waits for it.
  seat(rank).ended = with(full, [](Error::Parts& p) { p.step = "before join"; });
  if (claimed_ > 0) fail(*seat(rank).ended);
}

void Membership::fail(const Error& reason) {
  if (failure_) return;
  failure_ = with(reason, [&](Error::Parts& p) {
    if (p.step.empty() && p.rank >= 0) p.step = step_of(p.rank);
  });
  if (page_) {
    // One reason wins for everybody: a rank may have published its own just before.
    const auto published = page_->failure();
    if (published) failure_ = published;
    page_->publish_failure(page_->size(), *failure_);
  }
  Writer bytes;
  encode(*failure_, bytes);
  hooks_.abort_all(share(bytes.take()));
}

std::string Membership::step_of(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(seats_.size())) return {};
  const Seat& who = seat(rank);
  if (!who.claim) return {};
  const std::string shown = page_ ? page_->step(rank) : "";
  return shown.empty() ? who.step : shown;
}

std::string Membership::describe(int rank) const {
  const Seat& who = seat(rank);
  std::string text = fmt::format("rank {}", rank);
  std::vector<std::string> parts;
  if (const int pid = who.process.pid(); pid > 0) {
    parts.push_back(fmt::format("pid {}", pid));
    if (std::string state = state_text(pid); !state.empty()) parts.push_back(std::move(state));
  }
  if (who.left) {
    parts.emplace_back("has left the group");
  } else if (who.claim) {
    parts.push_back("in step " + step_of(rank));
  } else {
    parts.emplace_back("never joined");
  }
  return fmt::format("{} ({})", text, fmt::join(parts, ", "));
}

void Membership::fail_for_missing(const std::string& step, const std::vector<int>& missing) {
  std::vector<std::string> who;
  bool left = false;
  for (const int rank : missing) {
    if (who.size() < 32) who.push_back(describe(rank));
    left = left || seat(rank).left;
  }
  if (missing.size() > who.size()) {
    who.push_back(fmt::format("and {} more", missing.size() - who.size()));
  }
  std::string cause =
      fmt::format("{} of {} ranks {}: {}", missing.size(), seats_.size(),
                  left ? "left while others were in " + step : "did not arrive before the deadline",
                  fmt::join(who, "; "));
  if (const std::string strangers = hooks_.strangers(); !strangers.empty()) {
    cause += "; " + strangers;
  }
  fail(Error({.code = left ? ErrorCode::rank_left : ErrorCode::ranks_missing,
              .rank = missing.front(),
              .step = step.substr(0, step.find('/')),
              .cause = std::move(cause),
              .remedy = left ? "leave the group only when all ranks are done"
                             : fmt::format("start these ranks, or give them more time ({})",
                                           step.starts_with("make_") ? "RANKLINK_OP_TIMEOUT"
                                                                     : "RANKLINK_JOIN_TIMEOUT")}));
}

Deadline Membership::tick() {
  Deadline next = Deadline::never();
  if (failure_) return next;
  std::vector<int> missing;
  if (join_deadline_.passed()) {
    for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
      if (!seat(rank).claim) missing.push_back(rank);
    }
    join_deadline_ = Deadline::never();
    fail_for_missing("join", missing);
    return next;
  }
  next = next.earlier(join_deadline_);
  if (round_) {
    if (round_->deadline.passed()) {
      for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
        if (!round_->arrived[rank]) missing.push_back(static_cast<int>(rank));
      }
      fail_for_missing(round_->name, missing);
      return next;
    }
    next = next.earlier(round_->deadline);
  }
  bool any_alive = false;
  for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
    Seat& who = seat(rank);
    if (!who.claim || has_left(rank)) continue;
    any_alive = true;
    if (page_->died(rank)) suspect(rank, "the kernel marked its liveness word: its process ended");
    if (!who.derived_due) continue;
    const bool due = who.derived_due->passed();
    // A launcher knows more, if it can say it in time.
    if (due || !setup_.reports_ends) {
      const RankEnd end = end_of(rank);
      if (end.is_known() || due) {
        fail_for_end(end);
        return Deadline::never();
      }
    }
    next = next.earlier(*who.derived_due);
  }
  return any_alive ? next.earlier(Deadline::after(kTick)) : next;
}

}  // namespace ranklink
