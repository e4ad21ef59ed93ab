#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "c_handles.h"

// What a group does, blocking and started.

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string name_of_way(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Started" : "Blocking";
}

class COperations : public testing::TestWithParam<bool> {
 protected:
  // `call` takes a `ranklink_work**` and a `ranklink_error**`.
  template <typename Call>
  static void complete(const Call& call) {
    ranklink_work* work = nullptr;
    expect_ok([&](auto error) { return call(GetParam() ? &work : nullptr, error); });
    const Handle<ranklink_work> owned(work);
    ASSERT_EQ(work != nullptr, GetParam());
    if (work == nullptr) return;
    expect_ok([&](auto error) { return ranklink_work_wait(work, error); });
    int done = 0;
    expect_ok([&](auto error) { return ranklink_work_done(work, &done, error); });
    EXPECT_EQ(done, 1);
    done = 0;
    expect_ok([&](auto error) { return ranklink_work_wait_for(work, INT64_MAX, &done, error); });
    EXPECT_EQ(done, 1);
    auto* failure = reinterpret_cast<ranklink_error*>(0x10);
    expect_ok([&](auto error) { return ranklink_work_error(work, &failure, error); });
    EXPECT_EQ(failure, nullptr);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, COperations, testing::Bool(), name_of_way);

using Ints = std::array<std::int32_t, 2>;
constexpr int kType = RANKLINK_I32;

TEST_P(COperations, Reduce) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    const Ints input{rank + 1, 10 * (rank + 1)};
    Ints output{};
    complete([&](auto work, auto error) {
      return ranklink_all_reduce(group, input.data(), output.data(), 2, kType, RANKLINK_SUM, work,
                                 error);
    });
    EXPECT_THAT(output, ElementsAre(3, 30));
    complete([&](auto work, auto error) {
      return ranklink_all_reduce(group, input.data(), output.data(), 2, kType, RANKLINK_MAX, work,
                                 error);
    });
    EXPECT_THAT(output, ElementsAre(2, 20));
    complete([&](auto work, auto error) {
      return ranklink_reduce_scatter(group, input.data(), output.data(), 1, kType, RANKLINK_PROD,
                                     work, error);
    });
    EXPECT_EQ(output[0], rank == 0 ? 2 : 200);
    output = {};
    complete([&](auto work, auto error) {  // NULL where nothing is written
      return ranklink_reduce(group, input.data(), rank == 1 ? output.data() : nullptr, 2, kType,
                             RANKLINK_MIN, 1, work, error);
    });
    EXPECT_THAT(output, rank == 1 ? ElementsAre(1, 10) : ElementsAre(0, 0));
  });
}

TEST_P(COperations, Copy) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    const Ints input{rank + 1, 10 * (rank + 1)};
    Ints output{};
    complete([&](auto work, auto error) {
      return ranklink_all_gather(group, input.data(), output.data(), 1, kType, work, error);
    });
    EXPECT_THAT(output, ElementsAre(1, 2));
    output = {};
    complete([&](auto work, auto error) {
      return ranklink_gather(group, input.data(), rank == 1 ? output.data() : nullptr, 1, kType, 1,
                             work, error);
    });
    EXPECT_THAT(output, rank == 1 ? ElementsAre(1, 2) : ElementsAre(0, 0));
    output = {};
    complete([&](auto work, auto error) {
      return ranklink_scatter(group, rank == 1 ? input.data() : nullptr, output.data(), 1, kType, 1,
                              work, error);
    });
    EXPECT_THAT(output, ElementsAre(rank == 0 ? 2 : 20, 0));
    output = input;
    complete([&](auto work, auto error) {
      return ranklink_broadcast(group, output.data(), 2, kType, 1, work, error);
    });
    EXPECT_THAT(output, ElementsAre(2, 20));
    complete([&](auto work, auto error) {
      return ranklink_all_to_all(group, input.data(), output.data(), 1, kType, work, error);
    });
    EXPECT_THAT(output, rank == 0 ? ElementsAre(1, 2) : ElementsAre(10, 20));
    // Rank 0 sends both of its elements to rank 1, which sends nothing. What is said by arrays is
    // read before the call returns.
    output = {};
    complete([&](auto work, auto error) {
      std::array<std::size_t, 2> send_counts{0, rank == 0 ? 2u : 0u};
      std::array<std::size_t, 2> recv_counts{rank == 1 ? 2u : 0u, 0};
      std::array<std::size_t, 2> offsets{};
      const int status =
          ranklink_all_to_all_v(group, rank == 0 ? input.data() : nullptr, send_counts.data(),
                                offsets.data(), rank == 1 ? output.data() : nullptr,
                                recv_counts.data(), offsets.data(), kType, work, error);
      send_counts = recv_counts = offsets = {999, 999};
      return status;
    });
    EXPECT_THAT(output, rank == 1 ? ElementsAre(1, 10) : ElementsAre(0, 0));
  });
}

TEST_P(COperations, SendMessages) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    Ints data{rank + 1, 10 * (rank + 1)};
    complete([&](auto work, auto error) {
      return rank == 0 ? ranklink_send(group, data.data(), 2, kType, 1, work, error)
                       : ranklink_recv(group, data.data(), 2, kType, 0, work, error);
    });
    EXPECT_THAT(data, ElementsAre(1, 10));
    data[0] += rank;
    Ints received{};
    complete([&](auto work, auto error) {
      std::array<ranklink_transfer, 2> transfers{
          {{RANKLINK_SEND, 1 - rank, data.data(), sizeof data},
           {RANKLINK_RECV, 1 - rank, received.data(), sizeof received}}};
      const int status = ranklink_exchange(group, transfers.data(), transfers.size(), work, error);
      std::memset(transfers.data(), 0x55, sizeof transfers);
      return status;
    });
    EXPECT_THAT(received, ElementsAre(2 - rank, 10));
    complete([&](auto work, auto error) { return ranklink_barrier(group, work, error); });
  });
}

TEST_P(COperations, DoNothingWithNoElements) {
  const auto alone = join_alone();
  ranklink_group* group = alone.get();
  const std::size_t none = 0;
  complete([&](auto work, auto error) {
    return ranklink_all_reduce(group, nullptr, nullptr, 0, kType, RANKLINK_SUM, work, error);
  });
  complete([&](auto work, auto error) {
    return ranklink_broadcast(group, nullptr, 0, kType, 0, work, error);
  });
  complete([&](auto work, auto error) {
    return ranklink_all_to_all_v(group, nullptr, &none, &none, nullptr, &none, &none, kType, work,
                                 error);
  });
  complete(
      [&](auto work, auto error) { return ranklink_exchange(group, nullptr, 0, work, error); });
}

TEST_P(COperations, UseSharedBuffers) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    ranklink_shared_buffer* buffer = nullptr;
    expect_ok([&](auto error) { return ranklink_make_shared_buffer(group, 64, &buffer, error); });
    const Handle<ranklink_shared_buffer> owned(buffer);
    std::size_t bytes = 0;
    expect_ok([&](auto error) { return ranklink_shared_buffer_size(buffer, &bytes, error); });
    EXPECT_EQ(bytes, 64u);
    void* memory = nullptr;
    expect_ok([&](auto error) { return ranklink_shared_buffer_local(buffer, &memory, error); });
    auto* const data = static_cast<std::int32_t*>(memory) + 2;  // two elements are left alone
    constexpr std::size_t kOffset = 8;
    EXPECT_EQ(data[0], 0);
    const auto both = [&](std::int32_t first, std::int32_t second) {
      EXPECT_EQ(data[0], first);
      EXPECT_EQ(data[1], second);
      data[0] = rank + 1;
      data[1] = 10 * (rank + 1);
    };
    both(0, 0);
    complete([&](auto work, auto error) {
      return ranklink_all_reduce_shared(group, buffer, 2, kType, RANKLINK_SUM, kOffset, work,
                                        error);
    });
    both(3, 30);
    complete([&](auto work, auto error) {
      return ranklink_all_gather_shared(group, buffer, 1, kType, kOffset, work, error);
    });
    both(1, 20);
    complete([&](auto work, auto error) {
      return ranklink_reduce_scatter_shared(group, buffer, 1, kType, RANKLINK_SUM, kOffset, work,
                                            error);
    });
    EXPECT_EQ(data[rank], rank == 0 ? 3 : 30);
    both(data[0], data[1]);
    complete([&](auto work, auto error) {
      return ranklink_broadcast_shared(group, buffer, 2, kType, 1, kOffset, work, error);
    });
    both(2, 20);
    complete([&](auto work, auto error) {
      return ranklink_all_to_all_shared(group, buffer, 1, kType, kOffset, work, error);
    });
    both(rank == 0 ? 1 : 10, rank == 0 ? 2 : 20);

    complete([&](auto work, auto error) { return ranklink_barrier(group, work, error); });
    expect_ok(
        [&](auto error) { return ranklink_shared_buffer_peer(buffer, 1 - rank, &memory, error); });
    if (memory != nullptr) {
      EXPECT_EQ(static_cast<std::int32_t*>(memory)[2], 2 - rank);
    }
    complete([&](auto work, auto error) { return ranklink_barrier(group, work, error); });
  });
}

TEST(CSharedBuffer, RefusesWhatItCannotUse) {
  const auto group = join_alone();
  ranklink_shared_buffer* buffer = nullptr;
  expect_ok(
      [&](auto error) { return ranklink_make_shared_buffer(group.get(), 64, &buffer, error); });
  const Handle<ranklink_shared_buffer> owned(buffer);
  void* memory = nullptr;
  std::size_t bytes = 0;
  const auto refused = [](const char* text, auto call) { expect_refused(text, call); };
  refused("buffer is NULL",
          [&](auto error) { return ranklink_shared_buffer_size(nullptr, &bytes, error); });
  refused("buffer is NULL",
          [&](auto error) { return ranklink_shared_buffer_local(nullptr, &memory, error); });
  refused("buffer is NULL",
          [&](auto error) { return ranklink_shared_buffer_peer(nullptr, 0, &memory, error); });
  refused("bytes is NULL",
          [&](auto error) { return ranklink_shared_buffer_size(buffer, nullptr, error); });
  refused("memory is NULL",
          [&](auto error) { return ranklink_shared_buffer_local(buffer, nullptr, error); });
  refused("memory is NULL",
          [&](auto error) { return ranklink_shared_buffer_peer(buffer, 0, nullptr, error); });
  for (const int rank : {-1, 1}) {
    refused("rank",
            [&](auto error) { return ranklink_shared_buffer_peer(buffer, rank, &memory, error); });
  }
  refused("buffer is NULL",
          [&](auto error) { return ranklink_make_shared_buffer(group.get(), 64, nullptr, error); });
  refused("group is NULL", [&](auto error) {
    ranklink_shared_buffer* none = buffer;
    const int status = ranklink_make_shared_buffer(nullptr, 64, &none, error);
    EXPECT_EQ(none, nullptr);
    return status;
  });
  refused("buffer is NULL", [&](auto error) {
    return ranklink_register_memory(group.get(), &bytes, 4096, nullptr, error);
  });
  refused("memory is NULL", [&](auto error) {
    ranklink_shared_buffer* none = buffer;
    const int status = ranklink_register_memory(group.get(), nullptr, 4096, &none, error);
    EXPECT_EQ(none, nullptr);
    return status;
  });
  ranklink_shared_buffer_free(nullptr);
}

TEST(CSharedBuffer, CanBeMemoryOfTheProgram) {
  constexpr std::size_t kBytes = 1 << 20;  // whole pages, whatever their size
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const first = static_cast<volatile char*>(memory);
  *first = 'x';
  {
    const auto group = join_alone();
    ranklink_shared_buffer* buffer = nullptr;
    expect_ok([&](auto error) {
      return ranklink_register_memory(group.get(), memory, kBytes, &buffer, error);
    });
    const Handle<ranklink_shared_buffer> owned(buffer);
    void* local = nullptr;
    expect_ok([&](auto error) { return ranklink_shared_buffer_local(buffer, &local, error); });
    EXPECT_EQ(local, memory);
    EXPECT_EQ(*first, 'x');
    *first = 'y';
  }
  EXPECT_EQ(*first, 'y');
  ::munmap(memory, kBytes);
}

TEST(CSplit, MakesGroupsByColor) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    ranklink_group* made = nullptr;
    expect_ok([&](auto error) { return ranklink_group_split(group, 7, -rank, &made, error); });
    const Handle<ranklink_group> turned(made);
    int number = -1;
    expect_ok([&](auto error) { return ranklink_group_rank(made, &number, error); });
    EXPECT_EQ(number, 1 - rank);
    expect_ok([&](auto error) { return ranklink_barrier(made, nullptr, error); });

    expect_ok([&](auto error) {
      return ranklink_group_split(group, rank == 0 ? 0 : -1, 0, &made, error);
    });
    const Handle<ranklink_group> alone(made);
    EXPECT_EQ(made != nullptr, rank == 0);
    if (made == nullptr) return;
    int size = 0;
    expect_ok([&](auto error) { return ranklink_group_size(made, &size, error); });
    EXPECT_EQ(size, 1);
  });
  const auto group = join_alone();
  expect_refused("subgroup is NULL", [&](auto error) {
    return ranklink_group_split(group.get(), 0, 0, nullptr, error);
  });
  expect_refused("group is NULL", [&](auto error) {
    auto* made = group.get();
    const int status = ranklink_group_split(nullptr, 0, 0, &made, error);
    EXPECT_EQ(made, nullptr);
    return status;
  });
}

TEST(CWork, GoesOnByItself) {
  std::atomic<bool> late{true};
  run_ranks(2, [&](ranklink_group* group, int rank) {
    ranklink_work* work = nullptr;
    while (rank == 1 && late) std::this_thread::yield();
    expect_ok([&](auto error) { return ranklink_barrier(group, &work, error); });
    int done = 1;
    if (rank == 0) {
      expect_ok([&](auto error) { return ranklink_work_done(work, &done, error); });
      EXPECT_EQ(done, 0);
      done = 1;
      expect_ok([&](auto error) { return ranklink_work_wait_for(work, 1, &done, error); });
      EXPECT_EQ(done, 0);
    }
    late = false;
    ranklink_work_free(work);  // and is done nevertheless, before the next
    expect_ok([&](auto error) { return ranklink_barrier(group, nullptr, error); });
  });
}

TEST(CWork, RefusesNonsense) {
  const auto group = join_alone();
  ranklink_work* work = nullptr;
  expect_ok([&](auto error) { return ranklink_barrier(group.get(), &work, error); });
  const Handle<ranklink_work> owned(work);
  int done = 0;
  ranklink_error* failure = nullptr;
  expect_refused("work is NULL",
                 [&](auto error) { return ranklink_work_done(nullptr, &done, error); });
  expect_refused("work is NULL", [&](auto error) { return ranklink_work_wait(nullptr, error); });
  expect_refused("work is NULL",
                 [&](auto error) { return ranklink_work_wait_for(nullptr, 1, &done, error); });
  expect_refused("work is NULL",
                 [&](auto error) { return ranklink_work_error(nullptr, &failure, error); });
  expect_refused("done is NULL",
                 [&](auto error) { return ranklink_work_done(work, nullptr, error); });
  expect_refused("done is NULL",
                 [&](auto error) { return ranklink_work_wait_for(work, 1, nullptr, error); });
  expect_refused("negative",
                 [&](auto error) { return ranklink_work_wait_for(work, -1, &done, error); });
  expect_refused("failure is NULL",
                 [&](auto error) { return ranklink_work_error(work, nullptr, error); });
  ranklink_work_free(nullptr);
}

TEST(CFail, ReachesAllRanks) {
  run_ranks(2, [](ranklink_group* group, int rank) {
    if (rank == 1) {
      expect_ok([&](auto error) {
        return ranklink_group_fail(group, "out of luck", "try again", error);
      });
    }
    ranklink_work* work = nullptr;
    ranklink_error* error = nullptr;
    int status = ranklink_barrier(group, &work, nullptr);
    const Handle<ranklink_work> owned(work);
    if (status == RANKLINK_OK) status = ranklink_work_wait(work, nullptr);
    EXPECT_NE(status, RANKLINK_OK);
    if (rank == 1) return;
    if (work != nullptr) {
      EXPECT_EQ(status, RANKLINK_ERROR_rank_failed);
      expect_ok([&](auto e) { return ranklink_work_error(work, &error, e); });
    } else {
      ranklink_barrier(group, nullptr, &error);
    }
    const Handle<ranklink_error> failure(error);
    EXPECT_EQ(ranklink_error_rank(error), 1);
    EXPECT_THAT(ranklink_error_message(error), HasSubstr("out of luck"));
  });
  const auto group = join_alone();
  expect_refused("cause is NULL",
                 [&](auto error) { return ranklink_group_fail(group.get(), nullptr, "", error); });
  expect_refused("group is NULL",
                 [&](auto error) { return ranklink_group_fail(nullptr, "", "", error); });
  expect_ok([&](auto error) { return ranklink_group_fail(group.get(), "so", nullptr, error); });
}

}  // namespace
