#include "group/bring_up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/socket.h"
#include "exchange/pull.h"
#include "exchange/trial.h"
#include "group/report.h"
#include "group/timeline.h"
#include "inspect/facts.h"

namespace ranklink {
namespace {

/// Bring-up in progress. Each step leaves in `group_` what the next one needs.
class BringUp {
 public:
  explicit BringUp(const Options& options) : options_(options) {}

  void join();
  void inspect();
  void propose();
  void try_out();
  void agree();
  void ready();

  void step(const char* name, void (BringUp::*body)());
  std::unique_ptr<Group::Impl> take() { return std::move(group_); }

 private:
  void prepare_successor(Claim& claim, const Joined& joined);
  void watch_holder();
  void share_page();
  bool can_pull_from_all();

  const Options& options_;
  int rank_ = -1;  ///< until it is known
  std::shared_ptr<World> world_ = std::make_shared<World>();
  std::unique_ptr<Group::Impl> group_;  ///< once its ranks are known
  Timeline timeline_;
  Deadline deadline_ = Deadline::never();
  Facts facts_;
  Offer offer_;
  Plan plan_;
};

}  // namespace

std::unique_ptr<Group::Impl> bring_up(const Options& options) {
  BringUp up(options);
  up.step("join", &BringUp::join);
  up.step("inspect", &BringUp::inspect);
  up.step("propose", &BringUp::propose);
  up.step("try", &BringUp::try_out);
  up.step("agree", &BringUp::agree);
  up.step("ready", &BringUp::ready);
  return up.take();
}

namespace {

// Runs one step. An error of this rank's own ends the job for all; one that came from elsewhere is
// only passed on.
void BringUp::step(const char* name, void (BringUp::*body)()) {
  timeline_.begin(name);
  const auto& client = world_->client;
  if (client) client->enter(name);
  try {
    (this->*body)();
  } catch (const Error& error) {
    if (client && client->failed()) throw;
    const Error full = with(error, [&](Error::Parts& p) {
      if (p.rank < 0) p.rank = rank_;
      if (p.step.empty()) p.step = name;
    });
    throw client ? client->fail(full) : full;
  } catch (const std::exception& error) {
    const Error full({.code = ErrorCode::rank_failed,
                      .rank = rank_,
                      .step = name,
                      .cause = error.what(),
                      .remedy = "look at what this process may use: memory, threads, processes"});
    throw client ? client->fail(full) : full;
  }
}

// Connect to the rendezvous, prove the secret, claim the seat.
void BringUp::join() {
  Settings& settings = world_->settings;
  settings.read_environment(environ);
  for (const auto& [name, value] : options_.settings) settings.set(name, value, Origin::program);
  if (const auto level = parse_log_level(settings.value("RANKLINK_LOG"))) set_log_level(*level);
  world_->forced = Forced::parse(settings.value("RANKLINK_ALGORITHM"));
  world_->op_timeout = settings.duration("RANKLINK_OP_TIMEOUT");
  deadline_ = settings.deadline("RANKLINK_JOIN_TIMEOUT");
  const Place place = find_place(options_);
  rank_ = place.rank;
  facts_ = inspect_process();

  Joined joined = find_rendezvous(options_, settings, place, deadline_);
  world_->hosted = std::move(joined.hosted);
  Claim claim{.version = RANKLINK_VERSION,
              .rank = place.rank,
              .size = place.size,
              .host = facts_.hostname,
              .pid = facts_.pid,
              .start_time = facts_.start_time,
              .process = process_token()};
  if (!joined.launched && place.rank == 1) prepare_successor(claim, joined);
  world_->client = std::make_unique<Client>(std::move(joined.connection), joined.secret, claim);
  Client& client = *world_->client;
  client.take_seat(deadline_);
  // All have come, so nobody needs the rendezvous's files any more.
  if (world_->hosted) world_->hosted->listening = Listening();
  world_->meeting = std::make_unique<Meeting>(client, joined.secret);
}

// Should rank 0 die, which serves the rendezvous, rank 1 takes over at this listener.
void BringUp::prepare_successor(Claim& claim, const Joined& joined) {
  const std::string mine = local_ip(joined.connection.fd());
  auto successor = std::make_shared<HostedServer>();
  try {
    const auto addresses = mine.empty() ? host_addresses(4) : std::vector<std::string>{mine};
    if (!addresses.empty()) add_tcp_listener(successor->listening, mine, addresses);
  } catch (const Error& error) {
    log(LogLevel::info, "no listener for a successor of the rendezvous: {}", error.cause());
  }
  if (successor->listening.endpoints.empty()) return;
  claim.successor = successor->listening.endpoints;
  successor->server =
      start_server(std::move(successor->listening.listeners), joined.secret, claim.size);
  world_->successor = std::move(successor);
}

// Tell all others what this process found out about itself, and its settings.
void BringUp::inspect() {
  Client& client = *world_->client;
  world_->device = open_device(world_->settings.value("RANKLINK_DEVICE"), facts_.boot_id);
  world_->around = std::make_unique<Surroundings>(
      Surroundings{.client = client, .device = *world_->device, .meeting = *world_->meeting});
  Surroundings& around = *world_->around;
  for (const Member& member : client.seating().members) {
    around.all_local = around.all_local && member.local;
  }
  if (!around.all_local) {
    world_->meeting->listen(world_->settings.value("RANKLINK_SOCKET_DIR"));
  }
  const Introduction mine = introduce(facts_, world_->settings, world_->meeting->endpoints());
  Circle everybody;
  for (int rank = 0; rank < client.size(); ++rank) everybody.members.push_back(rank);
  everybody.submit = [&client](const std::string& round, Bytes row, Deadline deadline) {
    return client.submit(round, std::move(row), deadline);
  };
  group_ = std::make_unique<Group::Impl>(world_, std::move(everybody), client.rank());
  const Bytes answer = client.submit("inspect", mine.encode(), deadline_);
  Reader reader(answer);
  for (const Bytes& row : split_rows(reader, client.size())) {
    around.ranks.push_back(Introduction::decode(row));
  }
  plan_ = Plan::decode(reader, client.size());
  reader.end();
  watch_holder();
}

// So that its end can be told, should it die.
void BringUp::watch_holder() {
  const int holder = world_->client->seating().holder;
  if (holder < 0 || holder == rank_) return;
  const Facts& its = world_->around->party(holder).facts;
  const auto shared = shared_namespaces(its, facts_);
  if (std::find(shared.begin(), shared.end(), "pid") == shared.end()) return;
  world_->client->watch_holder(ProcessWatch(its.pid, its.start_time));
}

// Make the memory that is to be shared, offer it, and meet the peers that the rendezvous can't pass
// descriptors to. The coordinator has put the mechanisms in order; each trial leaves out what facts
// of either side rule out.
void BringUp::propose() {
  Surroundings& around = *world_->around;
  const std::size_t bytes =
      std::max(SegmentLayout(around.size()).bytes(), trial_bytes(around.size()));
  group_->segment =
      world_->device->allocate(fmt::format("ranklink-segment-{}", around.rank()), bytes);
  offer_ = make_offer(around, group_->circle, group_->segment.get(), deadline_);
  if (around.all_local) return;
  std::set<int> peers;
  for (int peer = 0; peer < around.size(); ++peer) {
    if (peer != around.rank() && !around.relayed(peer)) peers.insert(peer);
  }
  around.pair_sockets = around.meeting.meet(group_->circle, around.ranks, peers,
                                            Meeting::Reach::socket_files, deadline_);
  share_page();
}

// A rank that came by TCP has no control page yet: it gets the one of the lowest rank that it
// shares a directory with. Who that is all ranks know, so it takes no asking.
void BringUp::share_page() {
  Surroundings& around = *world_->around;
  const auto& reached = around.meeting.reached_by_file();
  const auto giver = [&](int rank) {
    const auto& lower = reached[static_cast<std::size_t>(rank)];
    return around.party(rank).member.local || lower.empty() ? -1 : *lower.begin();
  };
  const auto socket_to = [&](int peer) -> FrameConnection* {
    auto& connection = around.pair_sockets[peer].connection;
    return connection ? &*connection : nullptr;
  };
  if (const int from = giver(around.rank()); from >= 0 && socket_to(from) != nullptr) {
    std::optional<Frame> frame;
    FrameConnection& connection = *socket_to(from);
    while (!(frame = connection.receive()) && !connection.closed() && !deadline_.passed()) {
      around.client.check();
      wait_for(connection.fd(), POLLIN, deadline_, Milliseconds(20));
    }
    if (frame && !frame->fds.empty()) {
      around.client.adopt_page(ControlPage::open(std::move(frame->fds.front()), around.size()));
    }
  }
  for (int peer = around.rank() + 1; peer < around.size(); ++peer) {
    if (giver(peer) != around.rank() || socket_to(peer) == nullptr) continue;
    socket_to(peer)->send(FrameType::post, Posting{0, {peer}}.encode(),
                          {borrow_fd(around.client.page().fd())});
  }
  // A server in this process learns of deaths there as ranks do.
  for (const auto& hosted : {world_->hosted, world_->successor}) {
    if (!hosted || !hosted->server || around.party(around.rank()).member.local) continue;
    Fd copy(::fcntl(around.client.page().fd(), F_DUPFD_CLOEXEC, 0));
    if (!copy) throw system_error("fcntl F_DUPFD_CLOEXEC of the control page", errno);
    hosted->server->use_page(ControlPage::open(std::move(copy), around.size()));
  }
}

// Try mechanism after mechanism, as the coordinator plans it from everybody's verdicts.
void BringUp::try_out() {
  Surroundings& around = *world_->around;
  while (!plan_.decided) {
    const Mechanism& mechanism = find_mechanism(plan_.mechanism);
    const VerdictRow row = try_mechanism(around, group_->circle, mechanism, offer_,
                                         plan_.pairs.peers_of(around.rank()),
                                         group_->links[plan_.mechanism], deadline_);
    const Bytes answer = around.client.submit("try/verdicts", row.encode(), deadline_);
    Reader reader(answer);
    plan_ = Plan::decode(reader, around.size());
    reader.end();
  }
}

// Build the routes that were decided, acknowledge the decision, and wait for the commit.
void BringUp::agree() {
  Client& client = *world_->client;
  world_->decision = Decision::decode(plan_.decision);
  if (world_->decision.size != client.size()) Reader::fail("a decision for another group");
  // Trials wrote here. No peer writes again before the commit.
  Routes::prepare(group_->segment->data(), client.size());
  group_->make_routes();
  Writer acknowledgement;
  const Digest digest = world_->decision.digest();
  acknowledgement.raw(digest);
  acknowledgement.raw(timeline_.encode());
  acknowledgement.put(can_pull_from_all());
  const Bytes commit = client.submit("agree", acknowledgement.take(), deadline_);
  Reader reader(commit);
  Report& report = world_->report;
  report.epoch = reader.get<std::uint32_t>();
  report.digest = to_hex(digest);
  const auto rows = split_rows(reader, client.size());
  world_->pull = true;
  for (int rank = 0; rank < client.size(); ++rank) {
    Reader row(rows[static_cast<std::size_t>(rank)]);
    row.raw(digest.size());
    const auto steps = Timeline::decode(row, rank);
    report.timeline.insert(report.timeline.end(), steps.begin(), steps.end());
    if (row.get<std::uint8_t>() == 0) world_->pull = false;
  }
  group_->choose_algorithms();
}

// Some collectives have the kernel copy between ranks, if all can.
bool BringUp::can_pull_from_all() {
  Surroundings& around = *world_->around;
  for (int peer = 0; peer < around.size(); ++peer) {
    if (peer == around.rank()) continue;
    if (!find_mechanism(world_->decision.mechanism(around.rank(), peer)).maps) return false;
    if (!can_pull(around, offer_, peer)) return false;
  }
  return true;
}

// The group stands: say what it is.
void BringUp::ready() {
  world_->meeting->stop_listening_on_files();
  timeline_.end();
  world_->report.ready_ms = timeline_.total_ms();
  // What the others sent ends where they acknowledged; of itself this rank knows the rest.
  std::vector<StepReport>& steps = world_->report.timeline;
  std::erase_if(steps, [&](const StepReport& s) { return s.rank == group_->rank; });
  const Bytes mine = timeline_.encode();
  Reader reader(mine);
  const auto own = Timeline::decode(reader, group_->rank);
  steps.insert(steps.end(), own.begin(), own.end());
  std::stable_sort(steps.begin(), steps.end(),
                   [](const StepReport& a, const StepReport& b) { return a.rank < b.rank; });
  rebase(steps);
  warn_of_slow_routes(*group_);
}

}  // namespace
}  // namespace ranklink
