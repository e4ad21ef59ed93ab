#include <algorithm>

#include "inspect/facts.h"

namespace ranklink {
namespace {

constexpr std::size_t kNameLimit = 256;
constexpr std::size_t kInterfaceLimit = 1024;
constexpr std::size_t kAddressLimit = 64;
// An interface takes at least its name's length, a flag and a count; an address its length.
constexpr std::size_t kLeastInterface = 4 + 1 + 4;
constexpr std::size_t kLeastAddress = 4;

// What is cut off here would be refused by every peer.
void put_name(Writer& to, std::string_view name) { to.text(name.substr(0, kNameLimit)); }

template <typename List>
std::size_t put_count(Writer& to, const List& list, std::size_t limit) {
  const std::size_t count = std::min(list.size(), limit);
  to.put(static_cast<std::uint32_t>(count));
  return count;
}

std::size_t get_count(Reader& from, std::size_t least, std::size_t limit) {
  const std::size_t count = from.count(least);
  if (count > limit) Reader::fail("a list is longer than its limit");
  return count;
}

void put_interfaces(Writer& to, const std::vector<InterfaceFacts>& interfaces) {
  const std::size_t count = put_count(to, interfaces, kInterfaceLimit);
  for (std::size_t i = 0; i < count; ++i) {
    put_name(to, interfaces[i].name);
    to.put(interfaces[i].up);
    const std::size_t addresses = put_count(to, interfaces[i].addresses, kAddressLimit);
    for (std::size_t j = 0; j < addresses; ++j) put_name(to, interfaces[i].addresses[j]);
  }
}

std::vector<InterfaceFacts> get_interfaces(Reader& from) {
  std::vector<InterfaceFacts> interfaces(get_count(from, kLeastInterface, kInterfaceLimit));
  for (InterfaceFacts& one : interfaces) {
    one.name = from.text(kNameLimit);
    one.up = from.get<bool>();
    one.addresses.resize(get_count(from, kLeastAddress, kAddressLimit));
    for (std::string& address : one.addresses) address = from.text(kNameLimit);
  }
  return interfaces;
}

// The one order of the numbers, for both directions.
template <typename AnyFacts, typename Visit>
void for_each_number(AnyFacts& facts, Visit visit) {
  visit(facts.pid);
  visit(facts.start_time);
  visit(facts.uid);
  visit(facts.gid);
  for (auto& inode : facts.namespaces) visit(inode);
  visit(facts.seccomp_mode);
  visit(facts.no_new_privileges);
  visit(facts.dumpable);
  visit(facts.capabilities);
  visit(facts.yama_scope);
  visit(facts.pidfd_open_errno);
  visit(facts.pidfd_getfd_errno);
  visit(facts.descriptors_soft);
  visit(facts.descriptors_hard);
  visit(facts.locked_memory_soft);
  visit(facts.memory_limit);
  visit(facts.memory_available);
  visit(facts.shm_size);
  visit(facts.shm_free);
}

}  // namespace

void encode(const Facts& facts, Writer& to) {
  put_name(to, facts.hostname);
  put_name(to, facts.boot_id);
  put_name(to, facts.program);
  put_name(to, facts.container);
  for_each_number(facts, [&](const auto& number) { to.put(number); });
  put_interfaces(to, facts.interfaces);
}

Facts decode_facts(Reader& from) {
  Facts facts;
  facts.hostname = from.text(kNameLimit);
  facts.boot_id = from.text(kNameLimit);
  facts.program = from.text(kNameLimit);
  facts.container = from.text(kNameLimit);
  for_each_number(facts,
                  [&](auto& number) { number = from.get<std::decay_t<decltype(number)>>(); });
  facts.interfaces = get_interfaces(from);
  return facts;
}

}  // namespace ranklink
