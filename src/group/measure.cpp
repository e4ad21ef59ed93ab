#include "group/measure.h"

#include <chrono>
#include <cstring>

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
  Probe(Routes& routes, int peer) : routes_(routes), peer_(peer) {}

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
    const std::size_t chunk = routes_.max_message() / 2;
    std::vector<std::byte> data(chunk);
    double rate = 0;
    for (const std::size_t bytes : {kBytes / 16, kBytes}) {  // the first warms up
      const std::size_t messages = (bytes + chunk - 1) / chunk;
      const double begin = now();
      for (std::size_t i = 0; i < messages; ++i) {
        if (sends) {
          std::byte* place = routes_.reserve(chunk);
          std::memcpy(place, data.data(), chunk);
          routes_.put(peer_, {place, chunk});
        } else {
          std::memcpy(data.data(), routes_.wait(peer_, chunk).data(), chunk);
          routes_.release(peer_);
        }
      }
      sends ? hear() : tell();
      rate = static_cast<double>(messages * chunk) / (now() - begin);
    }
    return rate;
  }

 private:
  void tell() { routes_.put(peer_, {}); }
  void hear() {
    routes_.wait(peer_, 0);
    routes_.release(peer_);
  }

  Routes& routes_;
  int peer_;
};

}  // namespace

std::vector<RouteFigure> measure_routes(Group::Impl& group) {
  std::vector<RouteFigure> figures;
  const Call all_together{Collective::barrier};
  group.operate(Collective::barrier, tag_of(all_together), [&] {
    const int size = group.size();
    const int me = group.rank;
    const auto measured = [&](int a, int b) {
      return size <= kLargestFull || b - a == 1 || (a == 0 && b == size - 1);
    };
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        if (!measured(a, b)) continue;
        kBarrierFlat.run(*group.work, all_together);  // so that pairs don't disturb each other
        if (me != a && me != b) continue;
        const int peer = me == a ? b : a;
        Probe probe(*group.routes, peer);
        RouteFigure figure{.from = me, .to = peer};
        figure.latency = probe.ping_pong(me == a);
        const double forth = probe.stream(me == a);
        const double back = probe.stream(me == b);
        figure.bandwidth = me == a ? forth : back;
        figures.push_back(figure);
      }
    }
    kBarrierFlat.run(*group.work, all_together);
  });
  return figures;
}

}  // namespace ranklink
