#include "group/timeline.h"

#include <algorithm>
#include <chrono>

namespace ranklink {
namespace {

std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

double wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace

void Timeline::begin(const std::string& step) {
  end();
  entries_.push_back({.step = step, .start_ms = wall_ms(), .steady_start_ns = steady_ns()});
}

void Timeline::end() {
  if (entries_.empty() || entries_.back().length_ms >= 0) return;
  Entry& last = entries_.back();
  last.length_ms = static_cast<double>(steady_ns() - last.steady_start_ns) / 1e6;
}

double Timeline::total_ms() const {
  if (entries_.empty()) return 0;
  const Entry& last = entries_.back();
  const double before_last =
      static_cast<double>(last.steady_start_ns - entries_.front().steady_start_ns) / 1e6;
  return before_last + std::max(last.length_ms, 0.0);
}

Bytes Timeline::encode() const {
  Writer w;
  w.put(static_cast<std::uint32_t>(entries_.size()));
  for (const Entry& entry : entries_) {
    w.text(entry.step);
    w.put(entry.start_ms);
    w.put(std::max(entry.length_ms, 0.0));
  }
  return w.take();
}

std::vector<StepReport> Timeline::decode(Reader& from, int rank) {
  const std::size_t count = from.count(20);
  std::vector<StepReport> steps;
  for (std::size_t i = 0; i < count; ++i) {
    StepReport step{.rank = rank, .step = from.text(64)};
    step.start_ms = from.get_double();
    step.end_ms = step.start_ms + from.get_double();
    steps.push_back(std::move(step));
  }
  return steps;
}

void rebase(std::vector<StepReport>& steps) {
  if (steps.empty()) return;
  const auto first = std::min_element(steps.begin(), steps.end(),
                                      [](auto& a, auto& b) { return a.start_ms < b.start_ms; });
  const double origin = first->start_ms;
  for (StepReport& step : steps) {
    step.start_ms -= origin;
    step.end_ms -= origin;
  }
}

}  // namespace ranklink
