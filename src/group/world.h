#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.h"
#include "base/settings.h"
#include "collective/choose.h"
#include "device/device.h"
#include "exchange/decide.h"
#include "exchange/mechanism.h"
#include "group/joining.h"
#include "rendezvous/client.h"

namespace ranklink {

/// What all groups of one job have in common in this process: the rendezvous, the device, what was
/// agreed. Members are in the order in which they need each other.
struct World {
  std::shared_ptr<const ForkMark> mark = std::make_shared<ForkMark>();
  pid_t owner = ::getpid();
  Settings settings;
  Forced forced;  ///< algorithms
  Milliseconds op_timeout{};
  std::shared_ptr<HostedServer> hosted;     ///< if this rank serves the rendezvous
  std::shared_ptr<HostedServer> successor;  ///< if it would take it over
  std::unique_ptr<Client> client;
  std::unique_ptr<Device> device;
  std::unique_ptr<Meeting> meeting;
  std::unique_ptr<Surroundings> around;
  Decision decision;
  bool pull = false;  ///< all ranks can copy from each other's memory
  Report report;
  /// Who uses the client, once the group stands: it is for one thread at a time.
  std::recursive_mutex mutex;
  std::atomic<bool> failed{false};  ///< a call has thrown: no other is begun

  /// This process was forked after the group was made: its threads aren't here, and what it would
  /// send, it would send in the parent's name.
  bool forked() const { return mark->forked(); }
  ControlPage& page() { return client->page(); }
  Deadline op_deadline() const { return Deadline::after(op_timeout); }
};

}  // namespace ranklink
