#include "group/measure.h"

#include <chrono>
#include <map>

#include "collective/collectives.h"

namespace ranklink {
namespace {

constexpr int kLargestFull = 16;
constexpr int kRounds = 200;
constexpr std::size_t kBytes = 8 << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Probe {
 public:
  Probe(Routes& routes, int peer, Deadline deadline)
      : routes_(routes), peer_(peer), deadline_(deadline) {}

  /// Both sides call it; who `leads` gets the seconds of half a round trip.
  double ping_pong(bool leads) {
    double begin = 0;
    for (int i = -10; i < kRounds; ++i) {
      if (i == 0) begin = now();
      if (leads) tell();
      hear();
      if (!leads) tell();
    }
    return (now() - begin) / kRounds / 2;
  }

  /// Both sides call it; who `sends` gets bytes a second.
  double stream(bool sends) {
    const std::size_t chunk = routes_.layout().chunk();
    const Bytes data(chunk);
    double rate = 0;
    for (const std::size_t bytes : {kBytes / 16, kBytes}) {  // the first warms up
      const double begin = now();
      for (std::size_t sent = 0; sends && sent < bytes; sent += chunk) {
        routes_.put(peer_, Channel::gather, data, deadline_);
      }
      if (sends) tell();
      hear();
      if (!sends) tell();
      const std::size_t rounded = (bytes + chunk - 1) / chunk * chunk;
      rate = static_cast<double>(rounded) / (now() - begin);
    }
    return rate;
  }

 private:
  // Each direction counts its own signals; both sides make the same number of them.
  void tell() { routes_.signal(peer_, Channel::probe, ++told_, deadline_); }
  void hear() { routes_.wait(peer_, Channel::probe, ++heard_, deadline_); }

  Routes& routes_;
  int peer_;
  Deadline deadline_;
  std::uint32_t told_ = 0;
  std::uint32_t heard_ = 0;
};

}  // namespace

std::vector<RouteFigure> measure_routes(Group::Impl& group) {
  std::vector<RouteFigure> figures;
  group.operate("measure", [&](Deadline deadline) {
    const int size = group.size();
    const int me = group.rank();
    const auto measured = [&](int a, int b) {
      return size <= kLargestFull || b - a == 1 || (a == 0 && b == size - 1);
    };
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        if (!measured(a, b)) continue;
        barrier(*group.routes, deadline);  // so that pairs don't disturb each other
        if (me != a && me != b) continue;
        const int peer = me == a ? b : a;
        Probe probe(*group.routes, peer, deadline);
        RouteFigure figure{.from = me, .to = peer};
        figure.latency = probe.ping_pong(me == a);
        const double forth = probe.stream(me == a);
        const double back = probe.stream(me == b);
        figure.bandwidth = me == a ? forth : back;
        figures.push_back(figure);
      }
    }
    barrier(*group.routes, deadline);
  });
  return figures;
}

}  // namespace ranklink
