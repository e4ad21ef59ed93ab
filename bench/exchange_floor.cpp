// The least that an exchange between two cores of this machine takes: two threads write, each waits
// for the other's and reads it. No library can be faster than that by messages. Prints JSON.
//
// `line`: one cache line each way, with a sequence number in it. `exchange`: so many bytes each
// way, copied to memory that the other reads, announced by a line, and added to the reader's own.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr std::uint32_t kSlots = 64;
constexpr std::size_t kRing = 1 << 20;
constexpr int kRounds = 5;

struct alignas(256) Slot {
  std::atomic<std::uint32_t> sequence;
};

struct Side {
  Slot inbox[kSlots];
  alignas(4096) std::byte outbox[kRing];
  std::vector<float> in = std::vector<float>(kRing / sizeof(float), 1.0f);
  std::vector<float> out = std::vector<float>(kRing / sizeof(float));
};

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

double play(Side& mine, Side& theirs, std::size_t bytes, int turns, int core) {
  pin(core);
  const auto begin = std::chrono::steady_clock::now();
  std::size_t place = 0;
  for (std::uint32_t turn = 1; turn <= static_cast<std::uint32_t>(turns); ++turn) {
    if (bytes > 0) std::memcpy(mine.outbox + place, mine.in.data(), bytes);
    theirs.inbox[turn % kSlots].sequence.store(turn, std::memory_order_release);
    const auto& next = mine.inbox[turn % kSlots].sequence;
    while (next.load(std::memory_order_acquire) != turn) {
    }
    const auto* other = reinterpret_cast<const float*>(theirs.outbox + place);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) mine.out[i] = mine.in[i] + other[i];
    place = (place + bytes) % kRing;
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / turns;
}

double median_ns(std::size_t bytes, int turns) {
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) {
    const auto a = std::make_unique<Side>();
    const auto b = std::make_unique<Side>();
    double other = 0;
    std::thread thread([&] { other = play(*b, *a, bytes, turns, 1); });
    samples.push_back(play(*a, *b, bytes, turns, 0));
    thread.join();
  }
  std::sort(samples.begin(), samples.end());
  return samples[kRounds / 2];
}

}  // namespace

int main() {
  if (std::thread::hardware_concurrency() < 2) {
    std::fprintf(stderr, "exchange_floor: needs two cores\n");
    return 1;
  }
  std::printf("{\"line_ns\": %.1f, \"exchange_us\": {", median_ns(0, 1'000'000));
  const char* separator = "";
  for (const std::size_t bytes : {512u, 4096u, 32'768u, 131'072u, 262'144u}) {
    const int turns = static_cast<int>(std::max<std::size_t>(200'000'000 / (bytes + 4096), 1000));
    std::printf("%s\"%zu\": %.3f", separator, bytes, median_ns(bytes, turns) / 1000);
    separator = ", ";
  }
  std::printf("}}\n");
  return 0;
}
