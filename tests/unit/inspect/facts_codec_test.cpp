#include <gtest/gtest.h>

#include <functional>

#include "inspect/facts.h"

namespace ranklink {
namespace {

// Every member has a value of its own, so that a swapped or forgotten one shows.
Facts distinct_facts() {
  return {.hostname = "node-7",
          .boot_id = "6ba30842",
          .program = "python3",
          .pid = 11,
          .start_time = 0x1234567890abcdef,
          .uid = 0xfffffffe,
          .gid = 13,
          .namespaces = {21, 22, 23, 24, 25, 26},
          .seccomp_mode = 2,
          .no_new_privileges = true,
          .dumpable = false,
          .capabilities = 0x1ffffffffff,
          .yama_scope = -1,
          .pidfd_open_errno = 38,
          .pidfd_getfd_errno = 1,
          .descriptors_soft = 31,
          .descriptors_hard = 32,
          .locked_memory_soft = ~std::uint64_t{0},
          .memory_limit = 34,
          .memory_available = 35,
          .shm_size = 36,
          .shm_free = 37,
          .container = "docker",
          .interfaces = {{"lo", true, {"127.0.0.1", "::1"}}, {"eth0", false, {}}}};
}

Bytes encoded(const Facts& facts) {
  Writer to;
  encode(facts, to);
  return to.take();
}

Facts decoded(const Bytes& bytes) {
  Reader from{bytes};
  Facts facts = decode_facts(from);
  from.end();
  return facts;
}

void expect_refused(const Bytes& bytes, std::size_t size) {
  try {
    Reader from{ByteView(bytes).first(size)};
    decode_facts(from);
    ADD_FAILURE() << "took " << size << " of " << bytes.size() << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::protocol_violation);
  }
}

TEST(FactsCodec, BringsEveryMemberAcross) {
  const Facts in = distinct_facts();
  const Facts out = decoded(encoded(in));
  EXPECT_EQ(out.hostname, in.hostname);
  EXPECT_EQ(out.boot_id, in.boot_id);
  EXPECT_EQ(out.program, in.program);
  EXPECT_EQ(out.pid, in.pid);
  EXPECT_EQ(out.start_time, in.start_time);
  EXPECT_EQ(out.uid, in.uid);
  EXPECT_EQ(out.gid, in.gid);
  EXPECT_EQ(out.namespaces, in.namespaces);
  EXPECT_EQ(out.seccomp_mode, in.seccomp_mode);
  EXPECT_EQ(out.no_new_privileges, in.no_new_privileges);
  EXPECT_EQ(out.dumpable, in.dumpable);
  EXPECT_EQ(out.capabilities, in.capabilities);
  EXPECT_EQ(out.yama_scope, in.yama_scope);
  EXPECT_EQ(out.pidfd_open_errno, in.pidfd_open_errno);
  EXPECT_EQ(out.pidfd_getfd_errno, in.pidfd_getfd_errno);
  EXPECT_EQ(out.descriptors_soft, in.descriptors_soft);
  EXPECT_EQ(out.descriptors_hard, in.descriptors_hard);
  EXPECT_EQ(out.locked_memory_soft, in.locked_memory_soft);
  EXPECT_EQ(out.memory_limit, in.memory_limit);
  EXPECT_EQ(out.memory_available, in.memory_available);
  EXPECT_EQ(out.shm_size, in.shm_size);
  EXPECT_EQ(out.shm_free, in.shm_free);
  EXPECT_EQ(out.container, in.container);
  ASSERT_EQ(out.interfaces.size(), 2u);
  EXPECT_EQ(out.interfaces[0].name, "lo");
  EXPECT_TRUE(out.interfaces[0].up);
  EXPECT_EQ(out.interfaces[0].addresses, in.interfaces[0].addresses);
  EXPECT_EQ(out.interfaces[1].name, "eth0");
  EXPECT_FALSE(out.interfaces[1].up);
  EXPECT_TRUE(out.interfaces[1].addresses.empty());
}

TEST(FactsCodec, RefusesEveryTruncation) {
  const Bytes bytes = encoded(distinct_facts());
  for (std::size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes, size);
}

TEST(FactsCodec, EncodesNoMoreThanItDecodes) {
  Facts facts;
  facts.hostname.assign(1000, 'h');
  facts.interfaces.resize(2000);
  facts.interfaces[0].addresses.resize(100, std::string(300, '1'));
  const Facts out = decoded(encoded(facts));
  EXPECT_EQ(out.hostname.size(), 256u);
  EXPECT_EQ(out.interfaces.size(), 1024u);
  ASSERT_EQ(out.interfaces[0].addresses.size(), 64u);
  EXPECT_EQ(out.interfaces[0].addresses[0].size(), 256u);
}

// Facts without interfaces end in their count, which is put anew here.
Bytes with_interfaces(const std::function<void(Writer&)>& put) {
  Bytes bytes = encoded(Facts{});
  bytes.erase(bytes.end() - 4, bytes.end());
  Writer tail;
  put(tail);
  bytes.insert(bytes.end(), tail.bytes().begin(), tail.bytes().end());
  return bytes;
}

void put_empty_interfaces(Writer& to, std::uint32_t count) {
  to.put(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    to.text("");
    to.put(false);
    to.put(std::uint32_t{0});
  }
}

TEST(FactsCodec, LimitsTheNumberOfInterfaces) {
  EXPECT_EQ(decoded(with_interfaces([](Writer& to) {
              put_empty_interfaces(to, 1024);
            })).interfaces.size(),
            1024u);
  const Bytes more = with_interfaces([](Writer& to) { put_empty_interfaces(to, 1025); });
  expect_refused(more, more.size());
  const Bytes absurd = with_interfaces([](Writer& to) { to.put(0xffffffffu); });
  expect_refused(absurd, absurd.size());
}

TEST(FactsCodec, LimitsTheNumberOfAddresses) {
  const auto with_addresses = [](std::uint32_t count) {
    return with_interfaces([count](Writer& to) {
      to.put(std::uint32_t{1});
      to.text("eth0");
      to.put(true);
      to.put(count);
      for (std::uint32_t i = 0; i < count; ++i) to.text("10.0.0.1");
    });
  };
  EXPECT_EQ(decoded(with_addresses(64)).interfaces[0].addresses.size(), 64u);
  const Bytes more = with_addresses(65);
  expect_refused(more, more.size());
}

TEST(FactsCodec, LimitsNames) {
  Writer to;
  to.text(std::string(257, 'h'));
  to.raw(encoded(Facts{}));
  expect_refused(to.bytes(), to.bytes().size());
}

}  // namespace
}  // namespace ranklink
