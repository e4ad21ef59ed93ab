#include "bench_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/settings.h"

namespace ranklink {
namespace {

constexpr BenchKind kKinds[] = {
    {.name = "all_reduce",
     .collective = Collective::all_reduce,
     .reduces = true,
     .shared = true,
     .in_place = true},
    {.name = "all_gather",
     .collective = Collective::all_gather,
     .blocks_out = true,
     .shared = true,
     .in_place = true},
    {.name = "reduce_scatter",
     .collective = Collective::reduce_scatter,
     .reduces = true,
     .blocks_in = true,
     .shared = true,
     .in_place = true},
    {.name = "broadcast",
     .collective = Collective::broadcast,
     .rooted = true,
     .shared = true,
     .in_place = true},
    {.name = "reduce",
     .collective = Collective::reduce,
     .reduces = true,
     .rooted = true,
     .in_place = true},
    {.name = "gather",
     .collective = Collective::gather,
     .rooted = true,
     .blocks_out = true,
     .in_place = true},
    {.name = "scatter",
     .collective = Collective::scatter,
     .rooted = true,
     .blocks_in = true,
     .in_place = true},
    {.name = "all_to_all",
     .collective = Collective::all_to_all,
     .blocks_in = true,
     .blocks_out = true,
     .shared = true,
     .in_place = true},
    {.name = "barrier", .collective = Collective::barrier},
    {.name = "send_recv", .collective = Collective::exchange},
};

constexpr DataType kTypes[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64,
                               DataType::i8,  DataType::u8,   DataType::i32, DataType::i64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

// Far more than a machine has, and sums of a few thousand such still fit in 64 bits.
constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 50;

[[noreturn]] void refuse(std::string cause, std::string remedy) {
  throw Error(
      {.code = ErrorCode::bad_argument, .cause = std::move(cause), .remedy = std::move(remedy)});
}

// The one of `choices` that is named `word`.
template <typename Choice, std::size_t kCount, typename NameOf>
const Choice& choose(std::string_view what, const std::string& word,
                     const Choice (&choices)[kCount], NameOf name_of) {
  std::vector<std::string_view> names;
  for (const Choice& choice : choices) {
    if (name_of(choice) == word) return choice;
    names.push_back(name_of(choice));
  }
  const std::string all = fmt::format("{}", fmt::join(names, ", "));
  if (word.empty()) refuse(fmt::format("no {} was named", what), "name one of " + all);
  const auto near = nearest(word, names);
  refuse(fmt::format("'{}' is not a {}", word, what),
         near ? fmt::format("did you mean {}? There are {}", *near, all) : "use one of " + all);
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

std::uint64_t parse_size(std::string_view option, const std::string& text) {
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const auto unit = std::string_view("KMGTkmgt").find(digits.back());
    if (unit != std::string_view::npos) {
      shift = 10 * static_cast<int>(unit % 4 + 1);
      digits.remove_suffix(1);
    }
  }
  const auto number = parse_number(digits);
  if (!number || *number == 0) {
    refuse(fmt::format("{} {} is not a size", option, text),
           "write it as in 8, 4K, 64M or 1G; K is 1024 bytes");
  }
  if (*number > kLargestSize >> shift) {
    refuse(fmt::format("{} {} is more than any machine has", option, text), "ask for less");
  }
  return *number << shift;
}

std::uint64_t parse_count(std::string_view option, const std::string& text, std::uint64_t least,
                          std::uint64_t most) {
  const auto number = parse_number(text);
  if (number && *number >= least && *number <= most) return *number;
  refuse(fmt::format("{} {} can't be used", option, text),
         least == most ? fmt::format("only {} can", least)
                       : fmt::format("give a whole number from {} to {}", least, most));
}

std::size_t blocks(bool in_blocks, int ranks) {
  return in_blocks ? static_cast<std::size_t>(ranks) : 1;
}

}  // namespace

std::size_t BenchPlan::input_bytes(const BenchSize& size, int ranks) const {
  return size.count * size_of(type) * blocks(kind->blocks_in, ranks);
}

std::size_t BenchPlan::output_bytes(const BenchSize& size, int ranks) const {
  return size.count * size_of(type) * blocks(kind->blocks_out, ranks);
}

std::size_t BenchPlan::memory_of_rank(int ranks) const {
  const std::size_t input = input_bytes(sizes.back(), ranks);
  const std::size_t output = output_bytes(sizes.back(), ranks);
  return in_place ? std::max(input, output) : input + output;
}

double BenchPlan::bus_factor(int ranks) const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind->collective == Collective::all_reduce) return 2 * others;
  return kind->blocks_in || kind->blocks_out ? others : 1;
}

CLI::Option* BenchOptions::add_valued(CLI::App& command, const std::string& name,
                                      std::string& value, const std::string& help,
                                      const std::string& type_name) {
  const std::string shown = value.empty() ? help : fmt::format("{} ({})", help, value);
  CLI::Option* option = command.add_option(name, value, shown)->type_name(type_name);
  valued_.push_back(option);
  return option;
}

void BenchOptions::add(CLI::App& command) {
  command.add_option("COLLECTIVE", collective_,
                     "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
                     "all_to_all, barrier or send_recv");
  add_valued(command, "--min", min_, "the first size, in bytes, or as in 4K, 64M, 1G", "SIZE");
  add_valued(command, "--max", max_, "the last size", "SIZE");
  add_valued(command, "--step-factor", step_factor_, "how many times the last size the next is",
             "F");
  add_valued(command, "--dtype", dtype_, "f16, bf16, f32, f64, i8, u8, i32 or i64", "TYPE");
  add_valued(command, "--op", op_, "sum, prod, min, max or avg", "OP");
  add_valued(command, "--root", root_, "the root of broadcast, reduce, gather and scatter", "RANK");
  add_valued(command, "--iterations", iterations_,
             "timed calls of each size; without it, as many as take 100 ms", "N");
  command.add_flag("--shared", shared_,
                   "work in a buffer that the ranks share (make_shared_buffer); in place");
  command.add_flag("--in-place", in_place_, "input and output are the same memory");
  CLI::Option* check = command.add_flag(
      "--check", check_, "compare the result of one more call with a reference; done by default");
  command.add_flag("--no-check", no_check_, "only measure")->excludes(check);
}

std::vector<std::string> BenchOptions::words() const {
  std::vector<std::string> words = {collective_};
  for (const CLI::Option* option : valued_) {
    if (option->count() == 0) continue;
    words.push_back(option->get_name());
    words.push_back(option->results().front());
  }
  if (shared_) words.emplace_back("--shared");
  if (in_place_) words.emplace_back("--in-place");
  if (no_check_) words.emplace_back("--no-check");
  return words;
}

// What was asked for is obeyed or refused, never left aside.
void BenchOptions::refuse_unused(const BenchKind& kind) const {
  const auto list = [&](bool BenchKind::*has) {
    std::vector<std::string_view> names;
    for (const BenchKind& other : kKinds) {
      if (other.*has) names.push_back(other.name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
  };
  const auto need = [&](std::string_view option, bool BenchKind::*has) {
    if (kind.*has) return;
    refuse(fmt::format("{} has no {}", kind.name, option),
           fmt::format("leave {} out, or use one of {}", option, list(has)));
  };
  for (const CLI::Option* option : valued_) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (name == "--op") need(name, &BenchKind::reduces);
    if (name == "--root") need(name, &BenchKind::rooted);
    if (kind.collective == Collective::barrier && name != "--iterations") {
      refuse(fmt::format("barrier moves no data: it has no {}", name), "leave it out");
    }
  }
  if (shared_) need("--shared", &BenchKind::shared);
  if (in_place_) need("--in-place", &BenchKind::in_place);
}

// Rounded down to whole elements of each block, but to one at least; without repetitions.
std::vector<BenchSize> BenchOptions::sizes(const BenchKind& kind, DataType type, int ranks) const {
  if (kind.collective == Collective::barrier) return {{}};
  const std::uint64_t first = parse_size("--min", min_);
  const std::uint64_t last = parse_size("--max", max_);
  const std::uint64_t factor = parse_count("--step-factor", step_factor_, 2, 1 << 20);
  if (first > last) {
    refuse(fmt::format("--min {} is more than --max {}", min_, max_), "give a larger --max");
  }
  const std::size_t unit = size_of(type) * blocks(kind.blocks_in || kind.blocks_out, ranks);
  std::vector<BenchSize> sizes;
  for (std::uint64_t bytes = first;; bytes *= factor) {
    const std::size_t count = std::max<std::size_t>(1, bytes / unit);
    if (sizes.empty() || sizes.back().count != count) sizes.push_back({count * unit, count});
    if (bytes > last / factor) return sizes;
  }
}

BenchPlan BenchOptions::plan(int ranks) const {
  const BenchKind& kind = choose("collective", collective_, kKinds,
                                 [](const BenchKind& choice) { return choice.name; });
  refuse_unused(kind);
  const auto name_of = [](auto choice) { return to_string(choice); };
  BenchPlan plan{.kind = &kind,
                 .type = choose("type of elements", dtype_, kTypes, name_of),
                 .op = choose("reduction", op_, kOps, name_of),
                 .shared = shared_,
                 .in_place = in_place_ || shared_ || kind.collective == Collective::broadcast,
                 .check = !no_check_ && kind.collective != Collective::barrier};
  plan.root =
      static_cast<int>(parse_count("--root", root_, 0, static_cast<std::uint64_t>(ranks) - 1));
  if (!iterations_.empty()) {
    plan.iterations = parse_count("--iterations", iterations_, 1, 1'000'000'000);
  }
  if (kind.collective == Collective::exchange && ranks < 2) {
    refuse("send_recv sends from each rank to the next: one rank has nobody to send to",
           "ask for 2 ranks or more, as in -n 2");
  }
  plan.sizes = sizes(kind, plan.type, ranks);
  return plan;
}

std::string binary_size_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view unit;
  for (std::size_t i = 0; i < kUnits.size() && bytes != 0 && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    unit = kUnits.substr(i, 1);
  }
  return fmt::format("{}{}", bytes, unit);
}

}  // namespace ranklink
