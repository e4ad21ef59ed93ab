#include "exchange/pull.h"

#include "base/log.h"
#include "base/process_memory.h"
#include "exchange/pattern.h"

namespace ranklink {

bool can_pull(Surroundings& around, const Offer& offer, int peer) {
  const Facts mine = around.party(around.rank()).facts;
  const Facts theirs = around.party(peer).facts;
  const auto no = [&](const std::string& why) {
    log(LogLevel::info, "rank {} can't copy from the memory of rank {}: {}", around.rank(), peer,
        why);
    return false;
  };
  constexpr std::size_t kPidNamespace = 0;  // in kNamespaceKinds
  if (mine.boot_id != theirs.boot_id ||
      mine.namespaces[kPidNamespace] != theirs.namespaces[kPidNamespace]) {
    return no("it is on another host or in another pid namespace");
  }
  if (process_start_time(theirs.pid) != theirs.start_time) return no("its pid is another process");
  PullProbe probe;
  const int error = read_process_memory(theirs.pid, offer.probes[static_cast<std::size_t>(peer)],
                                        probe.data(), probe.size());
  if (error != 0) return no(errno_text(error));
  const PatternKey key{around.client.seating().job, peer, peer, kPullAccess, 0};
  if (const auto wrong = check_pattern(key, 0, probe)) return no(*wrong);
  // What is written is what stands there, since other peers read it.
  const int write_error = write_process_memory(
      theirs.pid, offer.probes[static_cast<std::size_t>(peer)], probe.data(), probe.size());
  if (write_error != 0) return no("writing: " + errno_text(write_error));
  return true;
}

}  // namespace ranklink
