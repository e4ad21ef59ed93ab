// One rank of bench/ready: joins, sums once, and says when it was ready and what memory it holds.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <ranklink/ranklink.hpp>
#include <string>
#include <vector>

namespace {

long field_kib(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::atol(line.c_str() + std::string(name).size());
  }
  return -1;
}

}  // namespace

int main() try {
  ranklink::Group group = ranklink::Group::join();
  timespec ready{};
  clock_gettime(CLOCK_MONOTONIC, &ready);
  // As large as a block of the collectives, so that all memory a group ever touches is touched.
  std::vector<float> data(1 << 18, 1.0f);
  group.all_reduce(data);
  const bool right = data.front() == static_cast<float>(group.size());
  std::printf(
      "{\"rank\": %d, \"ready_s\": %.9f, \"join_ms\": %.3f, \"right\": %s, "
      "\"rss_kib\": %ld, \"anon_kib\": %ld, \"shmem_kib\": %ld, \"data_kib\": %zu}\n",
      group.rank(), static_cast<double>(ready.tv_sec) + ready.tv_nsec * 1e-9,
      group.report().ready_ms, right ? "true" : "false", field_kib("VmRSS:"), field_kib("RssAnon:"),
      field_kib("RssShmem:"), data.size() * sizeof(float) / 1024);
  std::fflush(stdout);
  group.barrier();
  return right ? 0 : 1;
} catch (const ranklink::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
