#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench_data.h"
#include "bench_plan.h"
#include "own_ranks.h"
#include "ranklink/ranklink.hpp"

namespace ranklink {
namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

// A probe of so long tells how many calls take so long as one size is to take.
constexpr Seconds kProbe{0.01};
constexpr Seconds kGoal{0.1};
constexpr std::size_t kWarmUps = 2;

/// Private memory in whole pages.
class Pages {
 public:
  explicit Pages(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    memory_.reset(static_cast<std::byte*>(
        std::aligned_alloc(kPage, std::max(kPage, (bytes + kPage - 1) / kPage * kPage))));
    if (!memory_) {
      throw Error({.code = ErrorCode::memory_short,
                   .cause = fmt::format("no buffer of {} bytes can be had", bytes),
                   .remedy = "use a smaller --max"});
    }
  }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// One rank's side of the measurements: its buffers, and the call of the size in hand.
class Bench {
 public:
  Bench(Group& group, const BenchPlan& plan) : group_(group), plan_(plan) {
    const std::size_t largest_input = plan.input_bytes(plan.sizes.back(), group.size());
    const std::size_t largest_output = plan.output_bytes(plan.sizes.back(), group.size());
    if (plan.shared) {
      shared_.emplace(group.make_shared_buffer(plan.memory_of_rank(group.size())));
      first_ = second_ = shared_->local().data();
    } else if (plan.in_place) {
      first_ = second_ = pages_.emplace_back(plan.memory_of_rank(group.size())).data();
    } else {
      first_ = pages_.emplace_back(largest_input).data();
      second_ = pages_.emplace_back(largest_output).data();
    }
  }

  /// Times one size, then checks it.
  json measure(std::size_t row) {
    prepare(plan_.sizes[row]);
    fill({.type = plan_.type, .op = op(), .ranks = group_.size(), .seed = 0});
    const std::size_t iterations = choose_iterations();
    const Seconds time = time_of(iterations);
    json result = {{"row", row},
                   {"seconds", time.count() / static_cast<double>(iterations)},
                   {"iterations", iterations}};
    if (!plan_.check) return result;
    const TestData data{.type = plan_.type, .op = op(), .ranks = group_.size(), .seed = row + 1};
    fill(data);
    call_once();
    result["wrong"] = count_wrong(data);
    return result;
  }

 private:
  int next() const { return (group_.rank() + 1) % group_.size(); }
  int previous() const { return (group_.rank() + group_.size() - 1) % group_.size(); }
  std::size_t place() const { return static_cast<std::size_t>(group_.rank()); }
  bool is_root() const { return group_.rank() == plan_.root; }

  std::optional<ReduceOp> op() const {
    return plan_.kind->reduces ? std::optional(plan_.op) : std::nullopt;
  }

  void prepare(const BenchSize& size) {
    count_ = size.count;
    block_ = size.count * size_of(plan_.type);
    input_ = {first_, plan_.input_bytes(size, group_.size())};
    output_ = {second_, plan_.output_bytes(size, group_.size())};
    // In place the smaller one is this rank's block of the larger one.
    if (plan_.in_place && input_.size() < output_.size()) {
      input_ = output_.subspan(place() * block_, block_);
    } else if (plan_.in_place && output_.size() < input_.size()) {
      output_ = input_.subspan(place() * block_, block_);
    }
    transfers_ = {{{Transfer::Kind::send, next(), input_.data(), block_},
                   {Transfer::Kind::recv, previous(), output_.data(), block_}}};
  }

  // The input, and bytes that no result has in all that isn't.
  void fill(const TestData& data) {
    if (output_.empty()) return;
    std::memset(output_.data(), 0xff, output_.size());
    std::memset(input_.data(), 0xff, input_.size());
    const bool root_only = plan_.kind->collective == Collective::broadcast ||
                           plan_.kind->collective == Collective::scatter;
    if (!root_only || is_root()) data.fill(group_.rank(), input_);
  }

  void call_once() {
    if (plan_.shared) return call_shared();
    if (plan_.kind->collective == Collective::exchange) return group_.exchange(transfers_);
    group_.run({.collective = plan_.kind->collective,
                .input = input_.data(),
                .output = output_.data(),
                .count = count_,
                .type = plan_.type,
                .op = plan_.op,
                .root = plan_.root});
  }

  void call_shared() {
    switch (plan_.kind->collective) {
      case Collective::all_reduce:
        return group_.all_reduce(*shared_, count_, plan_.type, plan_.op);
      case Collective::all_gather:
        return group_.all_gather(*shared_, count_, plan_.type);
      case Collective::reduce_scatter:
        return group_.reduce_scatter(*shared_, count_, plan_.type, plan_.op);
      case Collective::broadcast:
        return group_.broadcast(*shared_, count_, plan_.type, plan_.root);
      case Collective::all_to_all:
        return group_.all_to_all(*shared_, count_, plan_.type);
      default:
        throw Error({.code = ErrorCode::bad_argument,
                     .cause = fmt::format("{} has no shared form", plan_.kind->name)});
    }
  }

  Seconds time_of(std::size_t iterations) {
    group_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < iterations; ++i) call_once();
    return std::chrono::steady_clock::now() - begin;
  }

  // Rank 0 decides, since no two ranks measure the same.
  std::size_t choose_iterations() {
    for (std::size_t i = 0; i < kWarmUps; ++i) call_once();
    if (plan_.iterations != 0) return plan_.iterations;
    for (std::size_t calls = 1;;) {
      const Seconds time = time_of(calls);
      const double scale = (time < kProbe ? 1.2 * kProbe : kGoal) / std::max(time, Seconds(1e-9));
      const double grown = static_cast<double>(calls) * scale;
      std::array<std::int64_t, 2> decision = {time >= kProbe, std::llround(grown)};
      if (decision[0] == 0) {
        const auto now = static_cast<std::int64_t>(calls);
        decision[1] = std::clamp<std::int64_t>(decision[1], 2 * now, 16 * now);
      }
      group_.broadcast(decision.data(), decision.size(), DataType::i64, 0);
      calls = static_cast<std::size_t>(std::max<std::int64_t>(1, decision[1]));
      if (decision[0] != 0) return calls;
    }
  }

  std::size_t count_wrong(const TestData& data) const {
    const std::byte* output = output_.data();
    const auto blocks_of_all = [&](std::size_t first) {
      std::size_t wrong = 0;
      for (int from = 0; from < group_.size(); ++from) {
        const std::byte* block = output + static_cast<std::size_t>(from) * block_;
        wrong += Reference::moved(data, from, first, count_).count_wrong(block);
      }
      return wrong;
    };
    switch (plan_.kind->collective) {
      case Collective::all_reduce:
        return Reference::reduced(data, 0, count_).count_wrong(output);
      case Collective::reduce:
        return is_root() ? Reference::reduced(data, 0, count_).count_wrong(output) : 0;
      case Collective::reduce_scatter:
        return Reference::reduced(data, place() * count_, count_).count_wrong(output);
      case Collective::broadcast:
        return Reference::moved(data, plan_.root, 0, count_).count_wrong(output);
      case Collective::scatter:
        return Reference::moved(data, plan_.root, place() * count_, count_).count_wrong(output);
      case Collective::all_gather:
        return blocks_of_all(0);
      case Collective::gather:
        return is_root() ? blocks_of_all(0) : 0;
      case Collective::all_to_all:
        return blocks_of_all(place() * count_);
      case Collective::exchange:
        return Reference::moved(data, previous(), 0, count_).count_wrong(output);
      default:
        return 0;
    }
  }

  Group& group_;
  const BenchPlan& plan_;
  std::vector<Pages> pages_;
  std::optional<SharedBuffer> shared_;
  std::byte* first_ = nullptr;  // the largest size's memory: input, and output
  std::byte* second_ = nullptr;

  std::size_t count_ = 0;
  std::size_t block_ = 0;  // bytes of `count_` elements
  std::span<std::byte> input_;
  std::span<std::byte> output_;
  std::array<Transfer, 2> transfers_;
};

int bench_rank(const BenchOptions& given) {
  const MessagesToLauncher messages;
  Group group = Group::join();
  const BenchPlan plan = given.plan(group.size());
  if (group.rank() == 0) messages.send({{"report", json::parse(group.report().to_json())}});
  Bench bench(group, plan);
  for (std::size_t row = 0; row < plan.sizes.size(); ++row) messages.send(bench.measure(row));
  group.barrier();
  return 0;
}

}  // namespace

void add_bench_rank(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand("bench-rank", "One rank of `ranklink bench`");
  command->group("");  // not for people
  const auto given = std::make_shared<BenchOptions>();
  given->add(*command);
  command->callback([&line, given] { line.exit_code = bench_rank(*given); });
}

}  // namespace ranklink
