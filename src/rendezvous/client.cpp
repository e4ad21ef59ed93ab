#include "rendezvous/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <thread>

#include "base/error.h"
#include "base/error_codec.h"
#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/endpoint.h"

namespace ranklink {
namespace {

// The server names who is missing when a deadline passes; it is given this long to say so.
constexpr Milliseconds kServerGrace{1000};
constexpr Milliseconds kReasonGrace{50};
constexpr Milliseconds kSlice{20};

std::uint32_t milliseconds_left(Deadline deadline) {
  constexpr std::int64_t kMost = 0xffff'ffff;
  if (deadline.is_never()) return kMost;
  const auto left = std::chrono::ceil<Milliseconds>(deadline.left()).count();
  return static_cast<std::uint32_t>(std::min<std::int64_t>(left, kMost));
}

}  // namespace

FrameConnection shake_hands(Fd fd, const Secret& secret, Deadline deadline) {
  FrameConnection connection(std::move(fd));
  const auto await = [&](FrameType type) -> Frame {
    for (;;) {
      if (auto frame = connection.receive()) {
        if (frame->type == FrameType::refusal) {
          Reader reader(frame->payload);
          const bool secret_wrong = reader.get<std::uint8_t>() != 0;
          const std::string reason = reader.text(256);
          throw Error({.code = secret_wrong ? ErrorCode::secret_mismatch
                                            : ErrorCode::rendezvous_unreachable,
                       .step = "join",
                       .cause = fmt::format("the rendezvous refused this process: {}", reason),
                       .remedy = "give all ranks of the job the same secret (RANKLINK_SECRET), and "
                                 "each job a rendezvous of its own"});
        }
        if (frame->type != type) Reader::fail("an unexpected frame in the handshake");
        return std::move(*frame);
      }
      if (connection.closed()) {
        throw Error({.code = ErrorCode::rendezvous_unreachable,
                     .step = "join",
                     .cause = "the rendezvous closed the connection during the handshake",
                     .remedy = "check that this address is ranklink's rendezvous"});
      }
      if (!wait_for(connection.fd(), POLLIN, deadline)) {
        throw Error({.code = ErrorCode::rendezvous_unreachable,
                     .step = "join",
                     .cause = "something accepts connections there but doesn't answer as a "
                              "rendezvous does",
                     .remedy = "check that rank 0 runs and isn't stopped, and that this address is "
                               "ranklink's"});
      }
    }
  };
  const Frame challenge = await(FrameType::challenge);
  Reader challenge_reader(challenge.payload);
  const auto server_nonce = read_array<Nonce>(challenge_reader);
  const auto my_nonce = random_bytes<Nonce>();
  Writer hello;
  hello.raw(my_nonce);
  hello.raw(client_proof(secret, server_nonce, my_nonce));
  connection.send(FrameType::hello, hello.take());
  const Frame proof = await(FrameType::proof);
  Reader proof_reader(proof.payload);
  if (!equal(read_array<Digest>(proof_reader), server_proof(secret, server_nonce, my_nonce))) {
    throw Error({.code = ErrorCode::secret_mismatch,
                 .step = "join",
                 .cause = "the rendezvous doesn't know this job's secret",
                 .remedy = "give all ranks of the job the same secret (RANKLINK_SECRET)"});
  }
  connection.set_limit(kRankLimit);
  return connection;
}

Client::Client(FrameConnection connection, Secret secret, Claim claim)
    : connection_(std::move(connection)), secret_(std::move(secret)), claim_(std::move(claim)) {}

Client::~Client() { leave(); }

const Seating& Client::take_seat(Deadline deadline) {
  claim_.timeout_ms = milliseconds_left(deadline);
  connection_.send(FrameType::claim, claim_.encode());
  Frame frame = next_frame(deadline, "the other ranks");
  if (frame.type != FrameType::seated) Reader::fail("an unexpected frame instead of a seat");
  seating_ = Seating::decode(frame.payload);
  if (static_cast<int>(seating_.members.size()) != claim_.size) {
    Reader::fail("a seating of another size");
  }
  if (seating_.has_page && frame.fds.empty()) {
    throw Error({.code = ErrorCode::descriptors_short,
                 .rank = rank(),
                 .step = step_,
                 .cause = "the kernel dropped the control page's descriptor: this process is at "
                          "its limit of open files",
                 .remedy = "raise the limit of open files of this rank (ulimit -n, LimitNOFILE=, "
                           "--ulimit nofile)"});
  }
  adopt_page(seating_.has_page ? ControlPage::open(std::move(frame.fds.front()), size())
                               : ControlPage::create(size()));
  seated_ = true;
  return seating_;
}

void Client::adopt_page(ControlPage page) {
  beacon_.reset();
  crash_watch_.reset();
  page_ = std::make_unique<ControlPage>(std::move(page));
  beacon_ = std::make_unique<LivenessBeacon>(*page_, rank());
  use_alternate_stack();
  crash_watch_ = std::make_unique<CrashWatch>(
      page_->crash_slot(rank()),
      [](void* shared) { static_cast<ControlPage*>(shared)->ring_all(); }, page_.get());
  page_->set_state(rank(), ControlPage::State::alive);
  page_->set_step(rank(), step_);
}

void Client::enter(const std::string& step) {
  step_ = step;
  if (page_) page_->set_step(rank(), step);
}

Bytes Client::submit(const std::string& round, Bytes row, Deadline deadline) {
  if (gone_over_) throw_failure(holder_left());
  const Submission submission{next_round_, round, milliseconds_left(deadline), std::move(row)};
  connection_.send(FrameType::submit, submission.encode());
  while (results_.empty()) {
    Frame frame = next_frame(deadline, "all ranks");
    if (!dispatch(frame)) Reader::fail("an unexpected frame in a round");
  }
  const Frame frame = std::move(results_.front());
  results_.pop_front();
  Reader reader(frame.payload);
  if (reader.get<std::uint32_t>() != next_round_++) Reader::fail("the result of another round");
  const ByteView result = reader.blob(kRankLimit);
  return {result.begin(), result.end()};
}

void Client::post(std::uint32_t tag, const std::vector<int>& peers, SharedFd fd) {
  Posting posting{tag, {peers.begin(), peers.end()}};
  std::vector<SharedFd> fds;
  if (fd) fds.push_back(std::move(fd));
  connection_.send(FrameType::post, posting.encode(), std::move(fds));
}

void Client::broker(std::uint32_t tag, const std::vector<int>& peers) {
  connection_.send(FrameType::broker, Posting{tag, {peers.begin(), peers.end()}}.encode());
}

void Client::collect(std::uint32_t tag, std::set<int> peers, const Take& take, Deadline deadline) {
  while (!peers.empty()) {
    if (passed_.empty()) {
      if (deadline.passed()) {
        throw Error(
            {.code = ErrorCode::ranks_missing,
             .rank = *peers.begin(),
             .step = step_,
             .cause = fmt::format("no descriptor came from {} ranks before the deadline: {}",
                                  peers.size(), fmt::join(peers, ", ")),
             .remedy = "look at what these ranks do, or give them more time "
                       "(RANKLINK_JOIN_TIMEOUT)"});
      }
      if (!wait_for(connection_.fd(), POLLIN, deadline, kSlice)) {
        check();
        continue;
      }
      Frame frame = next_frame(deadline, "descriptors of peers");
      if (!dispatch(frame)) Reader::fail("an unexpected frame instead of descriptors");
      continue;
    }
    Frame frame = std::move(passed_.front());
    passed_.pop_front();
    std::uint32_t handled = 0;
    auto fd = frame.fds.begin();
    for (const Passed::Item& item : Passed::decode(frame.payload).items) {
      const bool comes = !item.lost && !item.withheld;
      if (comes && fd == frame.fds.end()) break;  // dropped at this process's limit
      Fd mine = comes ? std::move(*fd++) : Fd();
      if (item.tag == tag && peers.erase(item.from) != 0) {
        take(item.from, std::move(mine), item.withheld);
      }
      ++handled;
    }
    Writer ack;
    ack.put(handled);
    connection_.send(FrameType::pass_ack, ack.take());
  }
}

Error Client::fail(const Error& error) {
  // What this rank was itself doing is its own affair.
  const Error published = with(error, [](Error::Parts& p) { p.context.clear(); });
  failure_ = error;
  if (page_ && !page_->publish_failure(rank(), published)) {
    if (const auto won = page_->failure()) {
      failure_ = with(*won, [&](Error::Parts& p) { p.context = error.context(); });
    }
  }
  Writer bytes;
  encode(published, bytes);
  connection_.send(FrameType::fail, bytes.take());
  return *failure_;
}

void Client::leave() {
  if (left_) return;
  left_ = true;
  if (seated_ && !failure_) {
    page_->set_state(rank(), ControlPage::State::left);
    page_->set_step(rank(), "left");
    page_->ring_all();
    connection_.send(FrameType::goodbye);
  }
  // What is still queued gets a moment to go out; a server that doesn't read it loses it.
  connection_.flush_until(Deadline::after(Milliseconds(200)));
  beacon_.reset();
  crash_watch_.reset();
}

bool Client::has_left(int other) const {
  return peers_left_.contains(other) || (page_ && page_->state(other) == ControlPage::State::left);
}

int Client::fd() const { return connection_.closed() ? -1 : connection_.fd(); }

void Client::receive_all() {
  while (auto frame = connection_.receive()) {
    if (!dispatch(*frame)) Reader::fail("an unexpected frame from the rendezvous");
  }
}

void Client::check() {
  if (failure_) throw_failure(*failure_);
  if (page_) {
    if (const auto failure = page_->failure()) throw_failure(*failure);
  }
  if (connection_.closed() && gone_over_) return;
  connection_.flush();
  receive_all();
  if (connection_.closed()) server_lost();
}

Frame Client::next_frame(Deadline deadline, const char* awaited) {
  const Deadline patience =
      deadline.is_never() ? deadline : Deadline::after(deadline.left() + kServerGrace);
  for (;;) {
    if (auto frame = connection_.receive()) {
      if (frame->type != FrameType::abort && frame->type != FrameType::left &&
          frame->type != FrameType::goodbye) {
        return std::move(*frame);
      }
      dispatch(*frame);
      continue;
    }
    if (connection_.closed()) {
      server_lost();
      throw_failure(holder_left());  // what was awaited can't come any more
    }
    if (page_) {
      if (const auto failure = page_->failure()) throw_failure(*failure);
    }
    if (patience.passed()) {
      throw Error(
          {.code = ErrorCode::rendezvous_lost,
           .rank = seating_.holder,
           .step = step_,
           .cause = fmt::format("waited for {} until the deadline, and the rendezvous, which "
                                "should say who is missing, doesn't answer",
                                awaited),
           .remedy = "check that the launcher, or rank 0, isn't stopped",
           .context = fmt::format("rank {} was in step {}", rank(), step_)});
    }
    const short events = connection_.wants_write() ? POLLIN | POLLOUT : POLLIN;
    if (wait_for(connection_.fd(), events, patience, kSlice)) connection_.flush();
  }
}

// Handles what may come at any time; false for a frame that belongs elsewhere.
bool Client::dispatch(Frame& frame) {
  switch (frame.type) {
    case FrameType::abort: {
      Reader reader(frame.payload);
      const Error error = decode_error(reader);
      if (page_) page_->publish_failure(rank(), error);
      throw_failure(error);
    }
    case FrameType::left: {
      Reader reader(frame.payload);
      peers_left_.insert(reader.get<std::int32_t>());
      return true;
    }
    case FrameType::goodbye:
      server_closing_ = true;
      return true;
    case FrameType::result:
      results_.push_back(std::move(frame));
      return true;
    case FrameType::pass:
      passed_.push_back(std::move(frame));
      return true;
    default:
      return false;
  }
}

void Client::throw_failure(const Error& error) {
  failure_ = error;
  if (error.rank() == rank() || !error.context().empty()) throw error;
  throw with(error, [&](Error::Parts& p) {
    p.context = fmt::format("rank {} was in step {}", rank(), page_ ? page_->step(rank()) : step_);
  });
}

Error Client::best_reason(const std::function<Error()>& derive, bool final) {
  const Deadline patience = Deadline::after(final ? Milliseconds(0) : kReasonGrace);
  try {
    do {
      check();
      if (const int socket = fd(); socket >= 0) {
        wait_for(socket, POLLIN, patience, Milliseconds(2));
      } else {
        std::this_thread::sleep_for(Milliseconds(2));
      }
    } while (!patience.passed());
  } catch (const Error& error) {
    return error;
  }
  return fail(derive());
}

RankEnd Client::end_of(int other) const {
  RankEnd end{.rank = other};
  if (other < 0) return end;
  end.crash = page_->crash(other);
  if (other == seating_.holder) end.wait_status = holder_.wait_status();
  return end;
}

Error Client::holder_left() const {
  const bool rank_held = seating_.holder >= 0;
  return Error({.code = rank_held ? ErrorCode::rank_left : ErrorCode::rendezvous_lost,
                .rank = seating_.holder,
                .step = step_,
                .cause = rank_held ? fmt::format("rank {}, which held the rendezvous, has left the "
                                                 "group",
                                                 seating_.holder)
                                   : "the rendezvous has closed in good order",
                .remedy = "leave the group only when all ranks are done"});
}

void Client::server_lost() {
  if (gone_over_) {
    if (server_closing_) return;
    throw_failure(
        Error({.code = ErrorCode::rendezvous_lost,
               .rank = seating_.successor,
               .step = step_,
               .cause = fmt::format("the rendezvous has closed, and so has its successor, "
                                    "which rank {} held",
                                    seating_.successor),
               .remedy = "look at the output of that rank"}));
  }
  if (!seated_) {
    throw Error({.code = ErrorCode::rendezvous_lost,
                 .step = step_,
                 .cause = "the rendezvous closed before all ranks had come",
                 .remedy = "look at the output of rank 0, or of the launcher"});
  }
  const bool orderly = server_closing_;
  // Its own failure, or the kernel's mark of its death, says more than a closed socket.
  const Deadline patience = Deadline::after(orderly ? Milliseconds(0) : kReasonGrace);
  do {
    if (const auto failure = page_->failure()) throw_failure(*failure);
    if (orderly || end_of(seating_.holder).is_known()) break;
    std::this_thread::sleep_for(Milliseconds(1));
  } while (!patience.passed());
  const bool reached = go_over();
  if (orderly) {
    if (!reached)
      gone_over_ = server_closing_ =
          true;  // it left as intended: only a later need makes this an error
    return;
  }
  const std::string held =
      seating_.holder < 0 ? "" : fmt::format(", which rank {} held,", seating_.holder);
  const bool died = seating_.holder >= 0 && page_->died(seating_.holder);
  const RankEnd end = end_of(seating_.holder);
  const Error derived =
      end.is_known()
          ? with(end.reason(), [&](Error::Parts& p) { p.step = page_->step(p.rank); })
          : Error({.code = seating_.holder < 0 ? ErrorCode::rendezvous_lost
                           : died              ? ErrorCode::rank_died
                                               : ErrorCode::connection_lost,
                   .rank = seating_.holder,
                   .step = seating_.holder < 0 ? step_ : page_->step(seating_.holder),
                   .cause = fmt::format("the rendezvous{} closed without a word; how its process "
                                        "ended isn't known here",
                                        held),
                   .remedy = "look at the output of that process, and at the kernel's log for "
                             "an out-of-memory kill"});
  const Error mine = fail(derived);
  if (!reached) throw_failure(mine);
  // The successor settles on one reason for all.
  const Deadline answer = Deadline::after(kServerGrace);
  while (!answer.passed() && !connection_.closed()) {
    receive_all();
    wait_for(connection_.fd(), POLLIN, answer, kSlice);
  }
  throw_failure(mine);
}

bool Client::go_over() {
  const Deadline patience = Deadline::after(kServerGrace);
  for (const std::string& endpoint : seating_.successor_endpoints) {
    try {
      FrameConnection next = shake_hands(connect_endpoint(endpoint, patience), secret_, patience);
      connection_ = std::move(next);
      gone_over_ = true;
      server_closing_ = false;
      claim_.resume = true;
      connection_.send(FrameType::claim, claim_.encode());
      return true;
    } catch (const Error& error) {
      log(LogLevel::info, "the rendezvous's successor can't be reached at {}: {}", endpoint,
          error.what());
    }
  }
  return false;
}

}  // namespace ranklink
