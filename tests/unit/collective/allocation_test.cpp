// Calls on routes that are mapped allocate nothing once they are warm.

#include <atomic>
#include <cstdlib>
#include <new>

#include "prepared_exchange.h"

namespace {

// Only threads that say so are counted.
thread_local bool counted = false;
std::atomic<std::size_t> allocations{0};

void* allocate(std::size_t size, std::size_t alignment) {
  if (counted) ++allocations;
  size = std::max<std::size_t>(1, size);
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace ranklink {
namespace {

class AllocationTest : public testing::TestWithParam<int> {
 protected:
  // Ten times uncounted, then counted: all ranks do it at once, so each waits for others too.
  static void expect_none(int times, const std::function<void(Workspace&)>& call) {
    RankThreads ranks(GetParam(), RankThreads::all_mapped, 0xffff'ffd0);
    allocations = 0;
    ranks.run_well([&](Workspace& work) {
      for (int i = 0; i < 10; ++i) call(work);
      counted = true;
      for (int i = 0; i < times; ++i) call(work);
      counted = false;
    });
    EXPECT_EQ(allocations, 0u);
  }
  static void expect_none(int times, const Algorithm& algorithm, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(GetParam());
    std::vector<Bytes> inputs(ranks, Bytes(bytes * ranks));
    std::vector<Bytes> outputs(ranks, Bytes(bytes * ranks));
    expect_none(times, [&](Workspace& work) {
      const auto rank = static_cast<std::size_t>(work.routes.rank());
      do_call(work, algorithm,
              {algorithm.collective, inputs[rank].data(), outputs[rank].data(), bytes / 4,
               DataType::f32});
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, AllocationTest, testing::Values(2, 4),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(AllocationTest, IsSeen) {
  allocations = 0;
  counted = true;
  delete new int(GetParam());
  counted = false;
  EXPECT_EQ(allocations, 1u);
}

TEST_P(AllocationTest, NoneByFlatAllReduce) {
  expect_none(100, kAllReduceFlat, 8);
  expect_none(100, kAllReduceFlat, 4096);
}

TEST_P(AllocationTest, NoneByTwoPhaseAllReduce) {
  expect_none(100, kAllReduceTwoPhase, 4096);
  expect_none(20, kAllReduceTwoPhase, 1 << 20);
}

TEST_P(AllocationTest, NoneByBarriers) {
  expect_none(100, kBarrierFlat, 0);
  expect_none(100, kBarrierDissemination, 0);
}

TEST_P(AllocationTest, NoneByTheOthers) {
  for (const Algorithm* algorithm : {&kAllGatherFlat, &kReduceScatterFlat, &kBroadcastFlat,
                                     &kReduceFlat, &kGatherFlat, &kScatterFlat, &kAllToAllFlat}) {
    expect_none(100, *algorithm, 8);
    expect_none(20, *algorithm, 200'000);
  }
}

TEST_P(AllocationTest, NoneByExchange) {
  PreparedExchange exchange(GetParam());
  for (int rank = 0; rank < GetParam(); ++rank) {
    exchange.add(rank, (rank + 1) % GetParam(), 8);
    exchange.add(rank, (rank + 1) % GetParam(), 300'000);
  }
  expect_none(30, [&](Workspace& work) { exchange.run(work); });
  EXPECT_EQ(exchange.verdict(), "");
}

}  // namespace
}  // namespace ranklink
