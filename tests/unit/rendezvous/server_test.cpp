#include "rendezvous/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <latch>
#include <thread>

#include "../base/expect_error.h"
#include "base/mapping.h"
#include "base/socket.h"
#include "rendezvous/client.h"
#include "rendezvous/endpoint.h"

namespace ranklink {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Deadline safety_net() { return Deadline::after(seconds(20)); }

Bytes concatenated(std::string_view, const std::vector<Bytes>& rows) {
  Bytes all;
  for (const Bytes& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

Claim claim_of(int rank, int size) {
  return {.version = RANKLINK_VERSION,
          .rank = rank,
          .size = size,
          .host = "here",
          .pid = 1000 + rank,
          .start_time = 7,
          .process = {},
          .timeout_ms = 20'000,
          .successor = {}};
}

Bytes row_of(int value) { return Bytes(1, static_cast<std::byte>(value)); }

// Waits until the other side closes; false if it doesn't.
bool closes(const Fd& fd, Deadline deadline) {
  Bytes into(4096);
  std::vector<Fd> fds;
  for (;;) {
    std::size_t count = 0;
    bool dropped = false;
    const Io io = receive_some(fd.get(), into, fds, count, dropped);
    if (io == Io::closed) return true;
    if (io == Io::would_block && !wait_for(fd.get(), POLLIN, deadline)) return false;
  }
}

// What each rank of a job threw.
using Outcomes = std::vector<std::optional<Error>>;

class ServerTest : public testing::Test {
 protected:
  // Ranks come by socketpair, as those of a launcher.
  void serve_pairs(int size) {
    Server::Options options = basic_options();
    options.size = size;
    for (int rank = 0; rank < size; ++rank) {
      auto [theirs, mine] = make_socketpair();
      options.connections.push_back(std::move(theirs));
      sockets_.push_back(std::move(mine));
    }
    server_ = std::make_unique<Server>(std::move(options));
  }
  void serve_tcp() {
    listening_ = {};
    add_tcp_listener(listening_, "127.0.0.1", {"127.0.0.1"});
    serve(listening_);
  }
  void serve_unix() {
    listening_ = {};
    add_unix_listener(listening_, testing::TempDir());
    serve(listening_);
  }
  void serve(Listening& listening) {
    Server::Options options = basic_options();
    options.listeners = std::move(listening.listeners);
    server_ = std::make_unique<Server>(std::move(options));
  }
  Server::Options basic_options() const {
    Server::Options options;
    options.secret = secret_;
    options.reduce = concatenated;
    return options;
  }

  Fd socket_of(int rank) {
    if (!sockets_.empty()) return std::move(sockets_[static_cast<std::size_t>(rank)]);
    return connect_endpoint(listening_.endpoints.at(0), safety_net());
  }
  std::unique_ptr<Client> client_of(const Claim& claim) {
    return std::make_unique<Client>(shake_hands(socket_of(claim.rank), secret_, safety_net()),
                                    secret_, claim);
  }
  std::unique_ptr<Client> seated(const Claim& claim) {
    auto client = client_of(claim);
    client->take_seat(safety_net());
    return client;
  }

  // Runs `body` as each rank, in threads.
  template <typename Body>
  Outcomes run(int size, Body body) {
    Outcomes outcomes(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const Error& error) {
          outcomes[static_cast<std::size_t>(rank)] = error;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  static void expect_none(const Outcomes& outcomes) {
    for (const auto& outcome : outcomes) EXPECT_FALSE(outcome) << outcome->what();
  }
  // Two rounds and the descriptors that all give all.
  void work_together(int size) {
    expect_none(run(size, [&](int rank) {
      const auto client = seated(claim_of(rank, size));
      for (int round = 0; round < 2; ++round) {
        client->enter("round" + std::to_string(round));
        const Bytes all = client->submit(client->step(), row_of(rank + 10 * round), safety_net());
        ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ(all[static_cast<std::size_t>(other)],
                    static_cast<std::byte>(other + 10 * round));
        }
      }
      client->leave();
    }));
    EXPECT_FALSE(server_->failure());
  }

  Secret secret_ = Secret::random();
  Listening listening_;
  std::vector<Fd> sockets_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, SeatsRanksOnInheritedSockets) {
  serve_pairs(4);
  work_together(4);
}

TEST_F(ServerTest, SeatsRanksOnASocketFile) {
  serve_unix();
  work_together(3);
}

TEST_F(ServerTest, SeatsRanksThatComeByTcp) {
  serve_tcp();
  work_together(3);
}

TEST_F(ServerTest, SharesOnePageWithLocalRanks) {
  serve_pairs(2);
  std::latch both(2);
  expect_none(run(2, [&](int rank) {
    const auto client = seated(claim_of(rank, 2));
    EXPECT_TRUE(client->seating().members[0].local);
    EXPECT_TRUE(client->seating().has_page);
    client->enter("step-" + std::to_string(rank));
    client->submit("x", {}, safety_net());
    EXPECT_EQ(client->page().step(1 - rank), "step-" + std::to_string(1 - rank));
    EXPECT_EQ(client->page().state(1 - rank), ControlPage::State::alive);
    EXPECT_EQ(server_->step_of(rank), "step-" + std::to_string(rank));
    both.arrive_and_wait();
  }));
}

TEST_F(ServerTest, TellsTheAddressOfRanksThatComeByTcp) {
  serve_tcp();
  expect_none(run(2, [&](int rank) {
    const auto client = seated(claim_of(rank, 2));
    EXPECT_FALSE(client->seating().members[0].local);
    EXPECT_EQ(client->seating().members[1].address, "127.0.0.1");
    EXPECT_FALSE(client->seating().has_page);
    client->submit("x", {}, safety_net());
  }));
}

TEST_F(ServerTest, PassesDescriptorsAndStreams) {
  const int size = 4;
  serve_pairs(size);
  expect_none(run(size, [&](int rank) {
    const auto client = seated(claim_of(rank, size));
    std::vector<int> peers;
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) peers.push_back(peer);
    }
    auto [mine, theirs] = make_socketpair();
    client->post(1, peers, std::make_shared<const Fd>(std::move(theirs)));
    int received = 0;
    client->collect(
        1, {peers.begin(), peers.end()}, [&](int, Fd fd, bool) { received += fd ? 1 : 0; },
        safety_net());
    EXPECT_EQ(received, size - 1);
    client->broker(2, peers);
    std::map<int, Fd> streams;
    client->collect(
        2, {peers.begin(), peers.end()},
        [&](int peer, Fd fd, bool) { streams[peer] = std::move(fd); }, safety_net());
    for (auto& [peer, stream] : streams) {
      std::size_t sent = 0;
      EXPECT_EQ(send_some(stream.get(), row_of(rank), {}, sent), Io::some);
    }
    for (auto& [peer, stream] : streams) {
      Bytes into(1);
      std::vector<Fd> fds;
      std::size_t count = 0;
      bool dropped = false;
      while (receive_some(stream.get(), into, fds, count, dropped) == Io::would_block) {
        ASSERT_TRUE(wait_for(stream.get(), POLLIN, safety_net()));
      }
      EXPECT_EQ(into, row_of(peer));
    }
    client->submit("end", {}, safety_net());
  }));
}

TEST_F(ServerTest, TellsPeersNotToWaitForADescriptor) {
  serve_pairs(2);
  expect_none(run(2, [&](int rank) {
    const auto client = seated(claim_of(rank, 2));
    client->post(1, {1 - rank}, nullptr);
    bool empty = false;
    client->collect(
        1, {1 - rank}, [&](int, const Fd& fd, bool withheld) { empty = !fd && withheld; },
        safety_net());
    EXPECT_TRUE(empty);
    client->submit("end", {}, safety_net());
  }));
}

// --- The secret, and strangers ---

TEST_F(ServerTest, RefusesWhoDoesNotKnowTheSecret) {
  for (const bool tcp : {false, true}) {
    tcp ? serve_tcp() : serve_unix();
    const std::string what = expect_error(ErrorCode::secret_mismatch, [&] {
      shake_hands(socket_of(0), Secret::random(), safety_net());
    });
    EXPECT_THAT(what, HasSubstr("it doesn't know the job's secret"));
    work_together(2);
  }
}

TEST(ShakeHands, RefusesAServerThatDoesNotKnowTheSecret) {
  auto [a, b] = make_socketpair();
  std::thread impostor([fd = std::move(b)]() mutable {
    FrameConnection connection(std::move(fd));
    connection.send(FrameType::challenge, Bytes(32));
    while (!connection.receive() && !connection.closed()) {
      wait_for(connection.fd(), POLLIN, safety_net());
    }
    connection.send(FrameType::proof, Bytes(32));
    while (!connection.receive() && !connection.closed()) {
      wait_for(connection.fd(), POLLIN, safety_net());
    }
  });
  expect_error(ErrorCode::secret_mismatch, [&, fd = std::move(a)]() mutable {
    shake_hands(std::move(fd), Secret::random(), safety_net());
  });
  impostor.join();
}

TEST(ShakeHands, EndsAtItsDeadline) {
  auto [a, b] = make_socketpair();
  const std::string what = expect_error(ErrorCode::rendezvous_unreachable, [&, fd = &a] {
    shake_hands(std::move(*fd), Secret::random(), Deadline::after(Milliseconds(10)));
  });
  EXPECT_THAT(what, HasSubstr("doesn't answer"));
}

TEST(ShakeHands, SaysThatTheOtherSideClosed) {
  auto [a, b] = make_socketpair();
  b.reset();
  expect_error(ErrorCode::rendezvous_unreachable,
               [&, fd = &a] { shake_hands(std::move(*fd), Secret::random(), safety_net()); });
}

TEST(ShakeHands, RefusesSomethingElse) {
  for (const std::string_view text :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    auto [a, b] = make_socketpair();
    std::size_t sent = 0;
    send_some(b.get(), view_of(text), {}, sent);
    expect_error(ErrorCode::protocol_violation,
                 [&, fd = &a] { shake_hands(std::move(*fd), Secret::random(), safety_net()); });
  }
}

TEST_F(ServerTest, LosesNothingByStrangers) {
  serve_tcp();
  std::map<std::string, Fd> strangers;
  const auto stranger = [&](const std::string& kind, ByteView says) {
    Fd fd = connect_endpoint(listening_.endpoints.at(0), safety_net());
    std::size_t sent = 0;
    if (!says.empty()) send_some(fd.get(), says, {}, sent);
    strangers[kind] = std::move(fd);
  };
  stranger("closes", {});
  strangers["closes"].reset();
  stranger("says nothing", {});
  stranger("says three bytes", view_of("abc"));
  stranger("is a browser", view_of("GET / HTTP/1.1\r\nHost: here\r\n\r\n"));
  Bytes garbage(1024);
  fill_random(garbage);
  garbage[0] = std::byte{0};
  stranger("says garbage", garbage);
  stranger("announces too much", encode_header({FrameType::hello, 100'000, 0}));
  stranger("claims without proof", encode_header({FrameType::claim, 0, 0}));
  stranger("says a short hello", encode_header({FrameType::hello, 0, 0}));
  strangers.erase("closes");

  work_together(2);  // while they are there
  const auto start = Deadline::Clock::now();
  for (const auto& [kind, fd] : strangers) EXPECT_TRUE(closes(fd, safety_net())) << kind;
  EXPECT_LT(Deadline::Clock::now() - start, seconds(5));
}

// Descriptors of a stranger would fill the server's table of open files before it could be refused.
TEST_F(ServerTest, TakesNoDescriptorsOfStrangers) {
  serve_unix();
  const Fd stranger = connect_endpoint(listening_.endpoints.at(0), safety_net());
  const auto [read_end, write_end] = make_socketpair();
  const Fd probe(::dup(write_end.get()));
  const Bytes header = encode_header({.type = FrameType::hello, .length = 64, .fds = 0});
  std::size_t sent = 0;
  ASSERT_EQ(send_some(stranger.get(), ByteView(header).first(1), {probe.get()}, sent), Io::some);
  EXPECT_TRUE(closes(stranger, Deadline::after(Milliseconds(1500)))) << "it waits for more";
}

TEST_F(ServerTest, KeepsInheritedSocketsThatAreSilent) {
  serve_pairs(2);
  EXPECT_FALSE(wait_for(sockets_[0].get(), POLLHUP, Deadline::after(Milliseconds(1))) &&
               closes(sockets_[0], Deadline::after(Milliseconds(1))));
  work_together(2);
}

TEST_F(ServerTest, TellsOfRefusedConnectionsWhenRanksAreMissing) {
  serve_tcp();
  const Fd stranger = connect_endpoint(listening_.endpoints.at(0), safety_net());
  std::size_t sent = 0;
  send_some(stranger.get(), view_of("GET / HTTP/1.1\r\n\r\n"), {}, sent);
  ASSERT_TRUE(closes(stranger, safety_net()));
  const auto client = client_of(claim_of(0, 2));
  const std::string what = expect_error(
      ErrorCode::ranks_missing, [&] { client->take_seat(Deadline::after(Milliseconds(10))); });
  EXPECT_THAT(what, HasSubstr("rank 1 (never joined)"));
  EXPECT_THAT(what, HasSubstr("1 connections were refused, the last from 127.0.0.1: not a frame"));
}

// --- Failures ---

TEST_F(ServerTest, TellsAllBothClaimantsOfOneRank) {
  serve_unix();
  const Outcomes outcomes = run(3, [&](int thread) {
    Claim claim = claim_of(thread == 2 ? 1 : thread, 3);
    claim.pid = 100 + thread;
    const auto client = client_of(claim);
    client->take_seat(safety_net());
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code(), ErrorCode::duplicate_rank) << outcome->what();
    EXPECT_EQ(outcome->rank(), 1);
    EXPECT_THAT(outcome->cause(), HasSubstr("pid 101"));
    EXPECT_THAT(outcome->cause(), HasSubstr("pid 102"));
  }
}

TEST_F(ServerTest, BringsTheFailureOfOneToAll) {
  serve_pairs(4);
  const Outcomes outcomes = run(4, [&](int rank) {
    const auto client = seated(claim_of(rank, 4));
    client->submit("together", {}, safety_net());
    client->enter("try");
    if (rank == 2) {
      client->fail(Error({.code = ErrorCode::rank_failed,
                          .rank = 2,
                          .step = "try",
                          .cause = "out of luck",
                          .remedy = "have some"}));
      return;
    }
    client->submit("try/x", {}, safety_net());
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    if (rank == 2) continue;
    ASSERT_TRUE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank]->code(), ErrorCode::rank_failed) << outcomes[rank]->what();
    EXPECT_EQ(outcomes[rank]->rank(), 2);
    EXPECT_EQ(outcomes[rank]->cause(), "out of luck");
    EXPECT_EQ(outcomes[rank]->context(), "rank " + std::to_string(rank) + " was in step try");
  }
  EXPECT_EQ(server_->failure()->cause(), "out of luck");
}

TEST_F(ServerTest, BringsTheLaunchersReasonToAll) {
  serve_pairs(3);
  std::latch waiting(2);
  std::thread launcher([&] {
    waiting.wait();
    server_->report_end(2, Error({.code = ErrorCode::rank_exited,
                                  .rank = 2,
                                  .cause = "exited with status 3",
                                  .remedy = "look"}));
  });
  const Outcomes outcomes = run(2, [&](int rank) {
    const auto client = client_of(claim_of(rank, 3));
    waiting.count_down();
    client->take_seat(safety_net());
  });
  launcher.join();
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code(), ErrorCode::rank_exited) << outcome->what();
    EXPECT_EQ(outcome->step(), "before join");
  }
}

TEST_F(ServerTest, AbortsRanksThatHaveNotClaimedYet) {
  serve_pairs(2);
  server_->abort(
      Error({.code = ErrorCode::interrupted, .cause = "ended", .remedy = "start again"}));
  for (const auto& outcome : run(2, [&](int rank) { seated(claim_of(rank, 2)); })) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code(), ErrorCode::interrupted) << outcome->what();
  }
}

TEST_F(ServerTest, NamesARankWhoseConnectionClosed) {
  serve_pairs(3);
  const Outcomes outcomes = run(3, [&](int rank) {
    if (rank == 1) {  // seated like the others, and gone without a word
      FrameConnection raw = shake_hands(socket_of(1), secret_, safety_net());
      raw.send(FrameType::claim, claim_of(1, 3).encode());
      while (!raw.receive()) ASSERT_TRUE(wait_for(raw.fd(), POLLIN, safety_net()));
      return;
    }
    const auto client = seated(claim_of(rank, 3));
    client->submit("together", {}, safety_net());
  });
  for (const std::size_t rank : {0u, 2u}) {
    ASSERT_TRUE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank]->code(), ErrorCode::rank_died) << outcomes[rank]->what();
    EXPECT_EQ(outcomes[rank]->rank(), 1);
    EXPECT_THAT(outcomes[rank]->cause(), HasSubstr("pid 1001"));
  }
}

TEST_F(ServerTest, EndsAJobWhoseRankBreaksTheProtocol) {
  serve_pairs(2);
  const Outcomes outcomes = run(2, [&](int rank) {
    if (rank == 1) {
      FrameConnection raw = shake_hands(socket_of(1), secret_, safety_net());
      raw.send(FrameType::claim, claim_of(1, 2).encode());
      raw.send(FrameType::submit, Bytes(3));
      while (!raw.closed() && !server_->failure()) {
        raw.receive();
        wait_for(raw.fd(), POLLIN, safety_net(), Milliseconds(10));
      }
      return;
    }
    const auto client = seated(claim_of(rank, 2));
    client->submit("together", {}, safety_net());
  });
  ASSERT_TRUE(outcomes[0]);
  EXPECT_EQ(outcomes[0]->code(), ErrorCode::protocol_violation) << outcomes[0]->what();
  EXPECT_EQ(outcomes[0]->rank(), 1);
}

TEST_F(ServerTest, LetsRanksLeaveOneByOne) {
  serve_pairs(3);
  std::latch first_left(1);
  std::latch others_know(2);
  expect_none(run(3, [&](int rank) {
    const auto client = seated(claim_of(rank, 3));
    client->submit("together", {}, safety_net());
    if (rank == 1) {
      client->leave();
      first_left.count_down();
      return;
    }
    first_left.wait();
    const Deadline deadline = safety_net();
    while (!client->has_left(1) && !deadline.passed()) client->check();
    EXPECT_TRUE(client->has_left(1));
    EXPECT_FALSE(client->has_left(2 - rank));
    others_know.arrive_and_wait();
  }));
  EXPECT_FALSE(server_->failure());
}

// --- The server's end, and its successor ---

// A server of which the test decides how it ends.
class FakeServer {
 public:
  FakeServer(Fd fd, const Secret& secret) : connection_(std::move(fd)) {
    const auto nonce = random_bytes<Nonce>();
    connection_.send(FrameType::challenge, Bytes(nonce.begin(), nonce.end()));
    const Frame hello = next();
    Reader reader(hello.payload);
    const Digest proof = server_proof(secret, nonce, read_array<Nonce>(reader));
    connection_.set_limit(kRankLimit);
    connection_.send(FrameType::proof, Bytes(proof.begin(), proof.end()));
    EXPECT_EQ(next().type, FrameType::claim);
  }
  Frame next() {
    for (;;) {
      if (auto frame = connection_.receive()) return std::move(*frame);
      if (connection_.closed() || !wait_for(connection_.fd(), POLLIN, safety_net())) {
        throw Error({.code = ErrorCode::connection_lost, .cause = "no frame came"});
      }
    }
  }
  FrameConnection& connection() { return connection_; }

 private:
  FrameConnection connection_;
};

Seating seating_of(int size, const std::vector<std::string>& successor = {}) {
  Seating seating;
  seating.holder = 0;
  seating.successor = successor.empty() ? -1 : 1;
  seating.successor_endpoints = successor;
  seating.members.assign(static_cast<std::size_t>(size), Member{true, ""});
  return seating;
}

// A rank seated by a fake server, which then does what `then` says.
template <typename Then, typename Body>
std::optional<Error> with_fake_server(const Claim& claim, Then then, Body body) {
  auto [mine, theirs] = make_socketpair();
  const Secret secret = Secret::random();
  std::thread server([&, fd = std::move(theirs)]() mutable {
    FakeServer fake(std::move(fd), secret);
    then(fake);
  });
  std::optional<Error> outcome;
  try {
    Client client(shake_hands(std::move(mine), secret, safety_net()), secret, claim);
    body(client);
  } catch (const Error& error) {
    outcome = error;
  }
  server.join();
  return outcome;
}

TEST(Client, SaysThatItsServerIsLostBeforeAllHaveCome) {
  const auto outcome = with_fake_server(
      claim_of(1, 2), [](FakeServer&) {}, [](Client& client) { client.take_seat(safety_net()); });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ErrorCode::rendezvous_lost) << outcome->what();
}

TEST(Client, NamesTheRankThatHeldALostServer) {
  const auto outcome = with_fake_server(
      claim_of(1, 2),
      [](FakeServer& fake) {
        fake.connection().send(FrameType::seated, seating_of(2).encode());
        fake.next();
      },
      [](Client& client) {
        client.take_seat(safety_net());
        client.submit("x", {}, safety_net());
      });
  ASSERT_TRUE(outcome);
  // Nothing shows that its process ended, only that it is out of reach.
  EXPECT_EQ(outcome->code(), ErrorCode::connection_lost) << outcome->what();
  EXPECT_EQ(outcome->rank(), 0);
}

// Its page would tell the others, so a rank without it can't go on; but its end must be orderly.
TEST(Client, SurvivesTheLossOfItsPagesDescriptor) {
  const auto outcome = with_fake_server(
      claim_of(1, 2),
      [](FakeServer& fake) {
        Seating seating = seating_of(2);
        seating.has_page = true;
        fake.connection().send(FrameType::seated, seating.encode());
      },
      [](Client& client) { client.take_seat(safety_net()); });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ErrorCode::descriptors_short) << outcome->what();
}

TEST(Client, RefusesASeatingOfAnotherSize) {
  const auto outcome = with_fake_server(
      claim_of(1, 2),
      [](FakeServer& fake) { fake.connection().send(FrameType::seated, seating_of(3).encode()); },
      [](Client& client) { client.take_seat(safety_net()); });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ErrorCode::protocol_violation) << outcome->what();
}

TEST(Client, RefusesAPageThatIsNone) {
  const auto outcome = with_fake_server(
      claim_of(1, 2),
      [](FakeServer& fake) {
        Seating seating = seating_of(2);
        seating.has_page = true;
        fake.connection().send(FrameType::seated, seating.encode(),
                               {std::make_shared<const Fd>(make_shared_memory("zeros", 65'536))});
      },
      [](Client& client) { client.take_seat(safety_net()); });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ErrorCode::protocol_violation) << outcome->what();
}

TEST(Client, SaysWhoDoesNotAnswer) {
  const auto outcome = with_fake_server(
      claim_of(1, 2),
      [](FakeServer& fake) {
        fake.connection().send(FrameType::seated, seating_of(2).encode());
        fake.next();  // and no answer, until the client goes
        expect_error(ErrorCode::connection_lost, [&] {
          for (;;) fake.next();
        });
      },
      [](Client& client) {
        client.take_seat(safety_net());
        client.submit("x", {}, Deadline::after(Milliseconds(1)));
      });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code(), ErrorCode::rendezvous_lost) << outcome->what();
  EXPECT_EQ(outcome->rank(), 0);
}

TEST_F(ServerTest, EndsWithoutHarmForRanksThatNeedItNoMore) {
  serve_pairs(2);
  std::latch together(2);
  std::latch closed(2);
  const auto outcomes = run(2, [&](int rank) {
    const auto client = seated(claim_of(rank, 2));
    client->submit("together", {}, safety_net());
    together.arrive_and_wait();
    if (rank == 0) server_.reset();
    closed.arrive_and_wait();
    const Deadline deadline = safety_net();
    while (client->fd() >= 0 && !deadline.passed()) client->check();
    client->check();
    EXPECT_EQ(client->fd(), -1);
    client->submit("more", {}, safety_net());
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code(), ErrorCode::rendezvous_lost) << outcome->what();
  }
}

// By TCP, so that no shared page tells the ranks of each other.
TEST_F(ServerTest, HandsOverToItsSuccessor) {
  serve_tcp();
  Listening second;
  add_tcp_listener(second, "127.0.0.1", {"127.0.0.1"});
  Server::Options options = basic_options();
  options.listeners = std::move(second.listeners);
  options.size = 3;
  const Server successor(std::move(options));
  std::latch together(3);
  std::latch closed(1);
  const auto outcomes = run(3, [&](int rank) {
    Claim claim = claim_of(rank, 3);
    if (rank == 1) claim.successor = second.endpoints;
    const auto client = seated(claim);
    client->submit("together", {}, safety_net());
    together.arrive_and_wait();
    if (rank == 0) {
      client->leave();
      server_.reset();
      closed.count_down();
      return;
    }
    closed.wait();
    client->check();  // here they go over
    EXPECT_TRUE(client->has_left(0));
    EXPECT_GE(client->fd(), 0);
    if (rank == 2) {
      client->fail(Error({.code = ErrorCode::rank_failed,
                          .rank = 2,
                          .step = "later",
                          .cause = "out of luck",
                          .remedy = "have some"}));
      return;
    }
    const Deadline deadline = safety_net();
    while (!deadline.passed()) client->check();
  });
  EXPECT_FALSE(outcomes[0]);
  EXPECT_FALSE(outcomes[2]);
  ASSERT_TRUE(outcomes[1]);
  EXPECT_EQ(outcomes[1]->cause(), "out of luck") << outcomes[1]->what();
  EXPECT_TRUE(successor.failure());
}

TEST_F(ServerTest, TellsItsSuccessorWhoWasLost) {
  Listening second;
  add_unix_listener(second, testing::TempDir());
  auto [mine, theirs] = make_socketpair();
  std::thread first([&, fd = std::move(theirs)]() mutable {
    FakeServer fake(std::move(fd), secret_);
    fake.connection().send(FrameType::seated, seating_of(2, second.endpoints).encode());
    fake.next();
  });
  Server::Options options = basic_options();
  options.listeners = std::move(second.listeners);
  options.size = 2;
  const Server successor(std::move(options));
  Client client(shake_hands(std::move(mine), secret_, safety_net()), secret_, claim_of(1, 2));
  client.take_seat(safety_net());
  expect_error(ErrorCode::connection_lost, [&] { client.submit("x", {}, safety_net()); });
  first.join();
  ASSERT_TRUE(successor.failure());
  EXPECT_EQ(successor.failure()->code(), ErrorCode::connection_lost);
  EXPECT_EQ(successor.failure()->rank(), 0);
}

// Who has left can't come to a round, whoever serves it by then.
TEST_F(ServerTest, NamesWhoHasLeftInARoundAtTheSuccessor) {
  serve_tcp();
  Listening second;
  add_tcp_listener(second, "127.0.0.1", {"127.0.0.1"});
  Server::Options options = basic_options();
  options.listeners = std::move(second.listeners);
  options.size = 2;
  const Server successor(std::move(options));
  std::latch closed(1);
  const auto outcomes = run(2, [&](int rank) {
    Claim claim = claim_of(rank, 2);
    if (rank == 0) claim.process = process_token();  // it holds the server
    if (rank == 1) claim.successor = second.endpoints;
    const auto client = seated(claim);
    client->submit("together", {}, safety_net());
    if (rank == 0) {
      client->leave();
      server_.reset();
      closed.count_down();
      return;
    }
    closed.wait();
    client->check();
    client->submit("make_shared_buffer/offer", {}, Deadline::after(Milliseconds(200)));
  });
  ASSERT_TRUE(outcomes[1]);
  EXPECT_EQ(outcomes[1]->code(), ErrorCode::rank_left) << outcomes[1]->what();
  EXPECT_EQ(outcomes[1]->rank(), 0) << outcomes[1]->what();
}

}  // namespace
}  // namespace ranklink
