#include "exchange/meeting.h"

#include <fmt/format.h>
#include <poll.h>

#include <list>

#include "base/log.h"
#include "base/socket.h"
#include "exchange/coordinator.h"

namespace ranklink {
namespace {

constexpr std::size_t kMaxAddresses = 6;
constexpr Milliseconds kPatience{3000};  // with an address that drops what it is sent
constexpr Milliseconds kSlice{20};
constexpr std::size_t kMaxStrangers = 64;

bool is_file(const std::string& endpoint) { return endpoint.starts_with("unix://"); }

struct Caller {
  FrameConnection connection;
  Deadline patience;
};

}  // namespace

Bytes MeetFrame::encode() const {
  Writer w;
  w.put(tag);
  w.put(from);
  w.put(to);
  w.raw(proof);
  return w.take();
}

MeetFrame MeetFrame::decode(ByteView bytes) {
  Reader r(bytes);
  MeetFrame frame;
  frame.tag = r.get<std::uint32_t>();
  frame.from = r.get<std::int32_t>();
  frame.to = r.get<std::int32_t>();
  frame.proof = read_array<Digest>(r);
  r.end();
  return frame;
}

void Meeting::listen(const std::string& socket_directory) {
  for (const std::string& directory : socket_directories(socket_directory)) {
    try {
      add_unix_listener(files_, directory);
    } catch (const Error& error) {
      log(LogLevel::info, "no socket file in {}: {}", directory, error.what());
    }
  }
  const std::string mine = local_ip(client_.fd());
  try {
    if (!mine.empty()) {
      add_tcp_listener(tcp_, mine, {mine});
    } else if (const auto addresses = host_addresses(kMaxAddresses); !addresses.empty()) {
      add_tcp_listener(tcp_, "", addresses);
    }
  } catch (const Error& error) {
    log(LogLevel::info, "no TCP listener: {}", error.what());
  }
}

void Meeting::stop_listening_on_files() { files_ = {}; }

std::vector<std::string> Meeting::endpoints() const {
  std::vector<std::string> all = files_.endpoints;
  all.insert(all.end(), tcp_.endpoints.begin(), tcp_.endpoints.end());
  return all;
}

std::vector<int> Meeting::all_listeners() const {
  std::vector<int> all;
  for (const Listening* listening : {&files_, &tcp_}) {
    for (const Fd& fd : listening->listeners) all.push_back(fd.get());
  }
  return all;
}

Digest Meeting::proof(std::string_view purpose, int from, int to) const {
  Writer who;
  who.put(tag_);
  who.put(static_cast<std::int32_t>(from));
  who.put(static_cast<std::int32_t>(to));
  return secret_.sign(purpose, {client_.seating().job, who.bytes()});
}

Met Meeting::call(int peer, const Introduction& who, Reach reach, Deadline deadline) {
  Met met;
  for (const std::string& endpoint : who.endpoints) {
    if (reach == Reach::socket_files && !is_file(endpoint)) continue;
    try {
      FrameConnection connection(
          connect_endpoint(endpoint, deadline.earlier(Deadline::after(kPatience))));
      const int me = client_.rank();
      connection.send(FrameType::meet,
                      MeetFrame{tag_, me, peer, proof("ranklink call", me, peer)}.encode());
      met.connection = std::move(connection);
      met.how = endpoint;
      return met;
    } catch (const Error& error) {
      met.cause += (met.cause.empty() ? "" : "; ") + error.cause();
    }
    client_.check();
  }
  if (met.cause.empty()) met.cause = fmt::format("rank {} offers no place to be met at", peer);
  return met;
}

std::map<int, Met> Meeting::meet(Circle& circle, const std::vector<Introduction>& ranks,
                                 const std::set<int>& peers, Reach reach, Deadline deadline) {
  tag_ = circle.next_tag();
  std::map<int, Met> met;
  Writer reached;
  std::vector<std::int32_t> lower;
  for (const int peer : peers) {
    if (peer > client_.rank()) continue;
    met[peer] = call(peer, ranks[static_cast<std::size_t>(peer)], reach, deadline);
    if (met[peer].connection) lower.push_back(peer);
  }
  reached.put(static_cast<std::uint32_t>(lower.size()));
  for (const int peer : lower) {
    reached.put(static_cast<std::int32_t>(peer));
    reached.put(is_file(met[peer].how));
  }
  const Bytes all = circle.submit(client_.step() + "/meet", reached.take(), deadline);

  std::set<int> expected;
  reached_by_file_.assign(ranks.size(), {});
  Reader reader(all);
  const auto rows = split_rows(reader, static_cast<int>(circle.members.size()));
  for (std::size_t member = 0; member < rows.size(); ++member) {
    const int rank = circle.members[member];
    Reader row(rows[member]);
    const std::size_t count = row.count(5);
    for (std::size_t i = 0; i < count; ++i) {
      const auto called = row.get<std::int32_t>();
      const bool by_file = row.get<std::uint8_t>() != 0;
      if (called == client_.rank()) expected.insert(rank);
      if (by_file) reached_by_file_[static_cast<std::size_t>(rank)].insert(called);
    }
  }
  for (const int peer : peers) {
    if (peer > client_.rank() && !expected.contains(peer)) {
      met[peer].cause = fmt::format("rank {} could not reach this rank", peer);
    }
  }
  answer(std::move(expected), met, deadline);
  for (const int peer : lower) {
    Met& mine = met[peer];
    bool answered = false;
    while (!answered && !mine.connection->closed() && !deadline.passed()) {
      client_.check();
      if (auto frame = mine.connection->receive()) {
        Reader proof_reader(frame->payload);
        answered =
            frame->type == FrameType::meet_ack &&
            equal(read_array<Digest>(proof_reader), proof("ranklink answer", client_.rank(), peer));
        if (!answered) break;
      } else {
        wait_for(mine.connection->fd(), POLLIN, deadline, kSlice);
      }
    }
    if (!answered) {
      mine.cause = fmt::format("{} accepted the connection, but not as rank {}", mine.how, peer);
      mine.connection.reset();
    } else {
      mine.connection->set_limit(kRankLimit);
    }
  }
  return met;
}

// Takes the calls of the ranks that said they have called; strangers are dropped.
void Meeting::answer(std::set<int> expected, std::map<int, Met>& met, Deadline deadline) {
  std::list<Caller> callers;
  while (!expected.empty()) {
    client_.check();
    if (deadline.passed()) {
      throw Error(
          {.code = ErrorCode::ranks_missing,
           .rank = *expected.begin(),
           .step = client_.step(),
           .cause = fmt::format("its connection to rank {} has not arrived", client_.rank()),
           .remedy = "check that nothing between the ranks drops connections"});
    }
    std::vector<pollfd> polls;
    const auto listeners = all_listeners();
    for (const int listener : listeners) polls.push_back({listener, POLLIN, 0});
    for (const Caller& caller : callers) polls.push_back({caller.connection.fd(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), deadline.poll_ms(kSlice));
    for (const int listener : listeners) {
      try {
        while (callers.size() < expected.size() + kMaxStrangers) {
          Fd fd = accept_one(listener);
          if (!fd) break;
          callers.push_back({FrameConnection(std::move(fd)), Deadline::after(kPatience)});
        }
      } catch (const Error& error) {  // at the limit of open files: when strangers have gone, again
        if (callers.empty()) throw;
        log(LogLevel::info, "a connection waits: {}", error.cause());
      }
    }
    for (auto caller = callers.begin(); caller != callers.end();) {
      bool keep = !caller->patience.passed();
      try {
        if (auto frame = caller->connection.receive()) {
          keep = false;
          const MeetFrame meet = MeetFrame::decode(frame->payload);
          if (frame->type == FrameType::meet && meet.to == client_.rank() && meet.tag == tag_ &&
              expected.contains(meet.from) &&
              equal(meet.proof, proof("ranklink call", meet.from, meet.to))) {
            const Digest ack = proof("ranklink answer", meet.from, meet.to);
            caller->connection.send(FrameType::meet_ack, Bytes(ack.begin(), ack.end()));
            caller->connection.set_limit(kRankLimit);
            Met& mine = met[meet.from];
            mine.how = peer_ip(caller->connection.fd()).empty() ? "unix" : "tcp";
            mine.connection = std::move(caller->connection);
            expected.erase(meet.from);
          }
        } else if (caller->connection.closed()) {
          keep = false;
        }
      } catch (const Error& error) {
        log(LogLevel::info, "dropped a stranger's connection: {}", error.cause());
        keep = false;
      }
      caller = keep ? std::next(caller) : callers.erase(caller);
    }
  }
}

}  // namespace ranklink
