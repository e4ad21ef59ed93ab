#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "commands.h"
#include "group/group_impl.h"
#include "group/measure.h"
#include "own_ranks.h"
#include "ranklink/ranklink.hpp"

namespace ranklink {
namespace {

using nlohmann::json;

// Small whole numbers, whose sum over a thousand ranks f32 holds exactly in any order.
float element(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13) % 1009);
}

std::vector<std::size_t> counts_up_to(std::size_t bytes) {
  std::vector<std::size_t> counts;
  for (std::size_t count = 1; count <= (64u << 20) / sizeof(float); count *= 4) {
    if (count * sizeof(float) > bytes) break;
    counts.push_back(count);
    if (count > 1 && count < 1 << 20) counts.push_back(count + 1);  // uneven parts
  }
  return counts;
}

// Stops before sizes that would take long here; all ranks stop at the same one.
json verify_all_reduce(Group& group, std::size_t bytes) {
  constexpr std::chrono::milliseconds kEnough{500};
  json sums = json::array();
  for (const std::size_t count : counts_up_to(bytes)) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = element(group.rank(), i);
    group.all_reduce(data);
    const bool slow = std::chrono::steady_clock::now() - begin > kEnough;
    std::size_t wrong = 0;
    // All elements of small ones, some of each page of large ones.
    const std::size_t stride = count > 1 << 16 ? 61 : 1;
    for (std::size_t i = 0; i < count; i += stride) {
      float sum = 0;
      for (int rank = 0; rank < group.size(); ++rank) sum += element(rank, i);
      if (data[i] != sum) ++wrong;
    }
    sums.push_back({{"bytes", count * sizeof(float)}, {"wrong", wrong}, {"right", wrong == 0}});
    if (wrong != 0) {
      group.fail(fmt::format("all_reduce of {} elements gave {} wrong ones", count, wrong),
                 "report this with the output of `ranklink check --json`");
    }
    float anybody_slow = slow ? 1 : 0;
    group.all_reduce(std::span(&anybody_slow, 1));
    if (anybody_slow != 0) break;
  }
  return sums;
}

int check_rank(const std::string& hold, std::size_t bytes) {
  const MessagesToLauncher messages;
  Group group = Group::join();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  messages.send({{"ready", std::chrono::nanoseconds(now).count()}});
  json message;
  if (group.rank() == 0) message["report"] = json::parse(group.report().to_json());
  // Each rank knows its own steps to the end.
  json steps = json::array();
  for (const StepReport& step : group.impl().world->report.timeline) {
    if (step.rank != group.rank()) continue;
    steps.push_back({{"rank", step.rank},
                     {"step", step.step},
                     {"start_ms", step.start_ms},
                     {"end_ms", step.end_ms}});
  }
  message["timeline"] = steps;
  json figures = json::array();
  for (const RouteFigure& figure : measure_routes(group.impl())) {
    figures.push_back({{"from", figure.from},
                       {"to", figure.to},
                       {"bandwidth", figure.bandwidth},
                       {"latency", figure.latency}});
  }
  message["all_reduce"] = verify_all_reduce(group, bytes);
  group.barrier();
  message["figures"] = figures;
  messages.send(message);
  const auto until = Deadline::after(parse_duration(hold).value_or(Milliseconds(0)));
  while (!until.passed()) {
    std::this_thread::sleep_for(
        std::min<Deadline::Clock::duration>(Milliseconds(20), until.left()));
    group.impl().world->client->check();
  }
  group.barrier();
  return 0;
}

}  // namespace

void add_check_rank(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand("check-rank", "One rank of `ranklink check`");
  command->group("");  // not for people
  const auto hold = std::make_shared<std::string>("0s");
  const auto bytes = std::make_shared<std::size_t>(64u << 20);
  command->add_option("--hold", *hold, "how long to stay");
  command->add_option("--bytes", *bytes, "the largest all-reduce");
  command->callback([&line, hold, bytes] { line.exit_code = check_rank(*hold, *bytes); });
}

}  // namespace ranklink
