#include "rendezvous/messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>

namespace ranklink {
namespace {

constexpr std::size_t kMaxEndpoints = 16;
constexpr std::size_t kMaxEndpoint = 512;

void put_texts(Writer& to, const std::vector<std::string>& texts) {
  to.put(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) to.text(text);
}

std::vector<std::string> get_endpoints(Reader& from) {
  const std::size_t count = from.count(4);
  if (count > kMaxEndpoints) Reader::fail("too many endpoints");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(from.text(kMaxEndpoint));
  return texts;
}

}  // namespace

JobId process_token() {
  static std::mutex mutex;
  static pid_t owner = 0;
  static JobId token;
  const std::lock_guard lock(mutex);
  if (owner != ::getpid()) {
    owner = ::getpid();
    token = random_bytes<JobId>();
  }
  return token;
}

Bytes Claim::encode() const {
  Writer w;
  w.text(version);
  w.put(rank);
  w.put(size);
  w.text(host);
  w.put(pid);
  w.put(start_time);
  w.raw(process);
  w.put(timeout_ms);
  put_texts(w, successor);
  w.put(resume);
  return w.take();
}

Claim Claim::decode(ByteView bytes) {
  Reader r(bytes);
  Claim c;
  c.version = r.text(64);
  c.rank = r.get<std::int32_t>();
  c.size = r.get<std::int32_t>();
  c.host = r.text(256);
  c.pid = r.get<std::int32_t>();
  c.start_time = r.get<std::uint64_t>();
  c.process = read_array<JobId>(r);
  c.timeout_ms = r.get<std::uint32_t>();
  c.successor = get_endpoints(r);
  c.resume = r.get<std::uint8_t>() != 0;
  r.end();
  return c;
}

std::string Claim::text() const {
  return fmt::format("rank {} of {}, pid {} (started {}) on host {}", rank, size, pid, start_time,
                     host);
}

Bytes Seating::encode() const {
  Writer w;
  w.raw(job);
  w.put(holder);
  w.put(successor);
  put_texts(w, successor_endpoints);
  w.put(static_cast<std::uint32_t>(members.size()));
  for (const Member& member : members) {
    w.put(member.local);
    w.text(member.address);
  }
  w.put(has_page);
  return w.take();
}

Seating Seating::decode(ByteView bytes) {
  Reader r(bytes);
  Seating s;
  s.job = read_array<JobId>(r);
  s.holder = r.get<std::int32_t>();
  s.successor = r.get<std::int32_t>();
  s.successor_endpoints = get_endpoints(r);
  const std::size_t count = r.count(5);
  if (count > kMaxRanks) Reader::fail("too many ranks");
  for (std::size_t i = 0; i < count; ++i) {
    Member member;
    member.local = r.get<std::uint8_t>() != 0;
    member.address = r.text(64);
    s.members.push_back(std::move(member));
  }
  s.has_page = r.get<std::uint8_t>() != 0;
  r.end();
  return s;
}

Bytes Submission::encode() const {
  Writer w;
  w.put(index);
  w.text(round);
  w.put(timeout_ms);
  w.blob(row);
  return w.take();
}

Submission Submission::decode(ByteView bytes) {
  Reader r(bytes);
  Submission s;
  s.index = r.get<std::uint32_t>();
  s.round = r.text(64);
  s.timeout_ms = r.get<std::uint32_t>();
  const ByteView row = r.blob(bytes.size());
  s.row.assign(row.begin(), row.end());
  r.end();
  return s;
}

Bytes Posting::encode() const {
  Writer w;
  w.put(tag);
  w.put(static_cast<std::uint32_t>(peers.size()));
  for (const std::int32_t peer : peers) w.put(peer);
  return w.take();
}

Posting Posting::decode(ByteView bytes) {
  Reader r(bytes);
  Posting p;
  p.tag = r.get<std::uint32_t>();
  const std::size_t count = r.count(4);
  for (std::size_t i = 0; i < count; ++i) p.peers.push_back(r.get<std::int32_t>());
  r.end();
  return p;
}

Bytes Passed::encode() const {
  Writer w;
  w.put(static_cast<std::uint32_t>(items.size()));
  for (const Item& item : items) {
    w.put(item.from);
    w.put(item.tag);
    w.put(item.lost);
    w.put(item.withheld);
  }
  return w.take();
}

Passed Passed::decode(ByteView bytes) {
  Reader r(bytes);
  Passed p;
  const std::size_t count = r.count(10);
  for (std::size_t i = 0; i < count; ++i) {
    Item item;
    item.from = r.get<std::int32_t>();
    item.tag = r.get<std::uint32_t>();
    item.lost = r.get<std::uint8_t>() != 0;
    item.withheld = r.get<std::uint8_t>() != 0;
    p.items.push_back(item);
  }
  r.end();
  return p;
}

Digest client_proof(const Secret& secret, const Nonce& server, const Nonce& client) {
  return secret.sign("ranklink rank", {server, client});
}

Digest server_proof(const Secret& secret, const Nonce& server, const Nonce& client) {
  return secret.sign("ranklink server", {client, server});
}

}  // namespace ranklink
