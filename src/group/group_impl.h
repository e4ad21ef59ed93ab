#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.h"
#include "device/device.h"
#include "exchange/decide.h"
#include "exchange/mechanism.h"
#include "group/joining.h"
#include "ranklink/group.hpp"
#include "rendezvous/client.h"
#include "route/routes.h"

namespace ranklink {

/// A group that stands. Members are in the order in which they need each other.
class Group::Impl {
 public:
  pid_t owner = ::getpid();
  Settings settings;
  std::shared_ptr<HostedServer> hosted;     ///< if this rank serves the rendezvous
  std::shared_ptr<HostedServer> successor;  ///< if it would take it over
  std::unique_ptr<Client> client;
  std::unique_ptr<Device> device;
  std::unique_ptr<Meeting> meeting;
  std::unique_ptr<Surroundings> around;
  std::unique_ptr<Memory> segment;
  std::map<std::string, std::map<int, Link>> links;  ///< by mechanism, then peer
  Decision decision;
  std::unique_ptr<Routes> routes;
  Report report;
  std::uint64_t operations = 0;

  /// This process was forked after the group was made: its threads aren't here, and what it would
  /// send, it would send in the parent's name.
  bool forked() const { return owner != ::getpid(); }
  int rank() const { return client->rank(); }
  int size() const { return client->size(); }
  Deadline op_deadline() const { return settings.deadline("RANKLINK_OP_TIMEOUT"); }

  /// Runs one collective: names it for peers to see, and turns what goes wrong in it into the
  /// Error that all ranks report.
  void operate(const char* name, const std::function<void(Deadline)>& body);

  /// For Routes: throws if the job has failed or the peer that is waited for is gone.
  void check_peer(int peer, bool stream_open);
  [[noreturn]] void late(int peer, const char* awaited);
  [[noreturn]] void lost(int peer);

 private:
  int gone_ = -1;  ///< the peer that was gone when it was last looked at
};

}  // namespace ranklink
