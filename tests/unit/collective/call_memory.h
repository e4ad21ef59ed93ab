#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rank_threads.h"
#include "reduce_reference.h"

namespace ranklink {

/// Memory at some distance from a cache line, between bytes that nobody may touch.
class Area {
 public:
  Area(std::size_t bytes, std::size_t offset) : memory_(bytes + 4 * kGuard, kFill), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = 2 * kGuard - address % kGuard + offset % kGuard;
  }
  std::byte* data() { return memory_.data() + begin_; }
  const std::byte* data() const { return memory_.data() + begin_; }
  std::size_t size() const { return bytes_; }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (i == begin_) i += bytes_;
      if (memory_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kFill{0xa5};
  Bytes memory_;
  std::size_t bytes_;
  std::size_t begin_;
};

/// A call as all ranks make it: their memory, and what must be there afterwards.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;

  /// Makes it, as the rank whose workspace this is.
  virtual void run(Workspace& work) const = 0;
  virtual std::string text() const = 0;

  /// What isn't as it must be, or an empty text.
  std::string verdict() const {
    for (const Check& check : checks_) {
      if (check.expected.empty()) continue;
      const std::string who = text() + ", rank " + std::to_string(check.rank);
      const std::size_t count = check.expected.size() / size_of(check.type);
      const std::string wrong = difference(check.type, check.place, check.expected.data(), count);
      if (!wrong.empty()) return who + wrong;
      // Whatever is a NaN's payload: all ranks have the same.
      if (check.same_as == nullptr) continue;
      if (std::memcmp(check.place, check.same_as, check.expected.size()) != 0) {
        return who + " has another NaN";
      }
    }
    for (const auto& area : areas_) {
      if (!area->intact()) return text() + ": written beside its memory";
    }
    return {};
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& area : areas_) sum += area->size();
    return sum;
  }

 protected:
  std::byte* make(std::size_t bytes, std::size_t offset) {
    areas_.push_back(std::make_unique<Area>(bytes, offset * (areas_.size() % 3 + 1)));
    return areas_.back()->data();
  }
  void expect(std::size_t rank, DataType type, const std::byte* place, Bytes bytes,
              const std::byte* same_as = nullptr) {
    checks_.push_back({rank, type, place, std::move(bytes), same_as});
  }
  static void copy(std::byte* to, const Bytes& from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }

 private:
  struct Check {
    std::size_t rank;
    DataType type;
    const std::byte* place;
    Bytes expected;
    const std::byte* same_as;
  };
  std::vector<std::unique_ptr<Area>> areas_;
  std::vector<Check> checks_;
};

using PreparedCalls = std::vector<std::unique_ptr<Prepared>>;

/// Makes all these calls, one after the other, and looks at what they gave.
inline void expect_right(RankThreads& ranks, const PreparedCalls& calls) {
  ranks.run_well([&](Workspace& work) {
    for (const auto& call : calls) call->run(work);
  });
  for (const auto& call : calls) ASSERT_EQ(call->verdict(), "");
}

}  // namespace ranklink
