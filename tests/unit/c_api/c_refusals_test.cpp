#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "c_handles.h"

// What collectives refuse: before they start, so that the group stays as it was.

namespace {

using Error = ranklink_error**;
using Work = ranklink_work**;

// Refused when blocking and when started, which leaves no work.
template <typename Call>
void refused(const std::string& text, const Call& call) {
  SCOPED_TRACE(text);
  expect_refused(text, [&](Error error) { return call(nullptr, error); });
  expect_refused(text, [&](Error error) {
    auto* work = reinterpret_cast<ranklink_work*>(0x10);
    const int status = call(&work, error);
    EXPECT_EQ(work, nullptr);
    return status;
  });
}

class CRefusals : public testing::Test {
 protected:
  CRefusals() {
    ranklink_shared_buffer* made = nullptr;
    expect_ok([&](auto error) { return ranklink_make_shared_buffer(group_, 64, &made, error); });
    buffer_.reset(made);
  }
  // The group can still be used.
  ~CRefusals() override {
    expect_ok([&](auto error) { return ranklink_barrier(group_, nullptr, error); });
  }

  // All collectives with elements of `type`, reduced by `op`.
  struct Numbers {
    ranklink_group* group;
    const void* input;
    void* output;
    ranklink_shared_buffer* buffer;
    int type = RANKLINK_F32;
    int op = RANKLINK_SUM;
  };
  using Call = std::function<int(const Numbers&, Work, Error)>;
  static std::vector<Call> reductions() {
    return {[](const Numbers& n, Work w, Error e) {
              return ranklink_all_reduce(n.group, n.input, n.output, 1, n.type, n.op, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_reduce_scatter(n.group, n.input, n.output, 1, n.type, n.op, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_reduce(n.group, n.input, n.output, 1, n.type, n.op, 0, w, e);
            }};
  }
  static std::vector<Call> copies() {
    return {[](const Numbers& n, Work w, Error e) {
              return ranklink_all_gather(n.group, n.input, n.output, 1, n.type, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_gather(n.group, n.input, n.output, 1, n.type, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_scatter(n.group, n.input, n.output, 1, n.type, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_all_to_all(n.group, n.input, n.output, 1, n.type, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              const std::size_t one = 1;
              const std::size_t zero = 0;
              return ranklink_all_to_all_v(n.group, n.input, &one, &zero, n.output, &one, &zero,
                                           n.type, w, e);
            }};
  }
  static std::vector<Call> of_one_place() {
    return {[](const Numbers& n, Work w, Error e) {
              return ranklink_broadcast(n.group, n.output, 1, n.type, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_send(n.group, n.input, 1, n.type, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_recv(n.group, n.output, 1, n.type, 0, w, e);
            }};
  }
  static std::vector<Call> shared_reductions() {
    return {[](const Numbers& n, Work w, Error e) {
              return ranklink_all_reduce_shared(n.group, n.buffer, 1, n.type, n.op, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_reduce_scatter_shared(n.group, n.buffer, 1, n.type, n.op, 0, w, e);
            }};
  }
  static std::vector<Call> shared_copies() {
    return {[](const Numbers& n, Work w, Error e) {
              return ranklink_all_gather_shared(n.group, n.buffer, 1, n.type, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_broadcast_shared(n.group, n.buffer, 1, n.type, 0, 0, w, e);
            },
            [](const Numbers& n, Work w, Error e) {
              return ranklink_all_to_all_shared(n.group, n.buffer, 1, n.type, 0, w, e);
            }};
  }

  static void all_refuse(const std::string& text, const std::vector<std::vector<Call>>& calls,
                         const Numbers& numbers) {
    for (const auto& kind : calls) {
      for (const Call& call : kind) {
        refused(text, [&](Work work, Error error) { return call(numbers, work, error); });
      }
    }
  }

  Numbers good() { return {group_, &input_, &output_, buffer_.get()}; }
  static std::vector<std::vector<Call>> all() {
    return {reductions(), copies(), of_one_place(), shared_reductions(), shared_copies()};
  }

  Handle<ranklink_group> owned_ = join_alone();
  ranklink_group* group_ = owned_.get();
  Handle<ranklink_shared_buffer> buffer_;
  float input_ = 1;
  float output_ = 2;
};

TEST_F(CRefusals, OfNoGroup) {
  Numbers numbers = good();
  numbers.group = nullptr;
  all_refuse("group is NULL", all(), numbers);
  refused("group is NULL", [](Work work, Error error) {
    return ranklink_exchange(nullptr, nullptr, 0, work, error);
  });
  refused("group is NULL",
          [](Work work, Error error) { return ranklink_barrier(nullptr, work, error); });
}

TEST_F(CRefusals, OfUnknownNumbers) {
  for (const int unknown : {-1, 99, INT32_MAX, INT32_MIN, 256 + RANKLINK_F32}) {
    Numbers numbers = good();
    numbers.type = unknown;
    all_refuse("is no data type", all(), numbers);
    numbers = good();
    numbers.op = unknown;
    all_refuse("is no reduction", {reductions(), shared_reductions()}, numbers);
    const ranklink_transfer transfer{unknown, 0, &output_, 1};
    refused("is no kind of transfer", [&](Work work, Error error) {
      return ranklink_exchange(group_, &transfer, 1, work, error);
    });
  }
}

TEST_F(CRefusals, OfNoMemory) {
  Numbers numbers = good();
  numbers.input = nullptr;
  all_refuse("no memory for", {reductions(), copies()}, numbers);
  numbers = good();
  numbers.output = nullptr;
  all_refuse("no memory for", {reductions(), copies()}, numbers);
  numbers.input = nullptr;
  all_refuse("step", {of_one_place()}, numbers);
  numbers = good();
  numbers.buffer = nullptr;
  all_refuse("buffer is NULL", {shared_reductions(), shared_copies()}, numbers);
}

TEST_F(CRefusals, OfMessagesWithoutMemory) {
  refused("transfers is NULL", [&](Work work, Error error) {
    return ranklink_exchange(group_, nullptr, 1, work, error);
  });
  const ranklink_transfer transfer{RANKLINK_SEND, 0, nullptr, 1};
  refused("no data for", [&](Work work, Error error) {
    return ranklink_exchange(group_, &transfer, 1, work, error);
  });
  refused("more than memory holds", [&](Work work, Error error) {
    return ranklink_send(group_, &input_, SIZE_MAX / 2, RANKLINK_F64, 0, work, error);
  });
}

TEST_F(CRefusals, OfMissingCounts) {
  const std::size_t one = 1;
  for (std::size_t missing = 0; missing < 4; ++missing) {
    std::array<const std::size_t*, 4> arrays{&one, &one, &one, &one};
    arrays[missing] = nullptr;
    refused("no counts", [&](Work work, Error error) {
      return ranklink_all_to_all_v(group_, &input_, arrays[0], arrays[1], &output_, arrays[2],
                                   arrays[3], RANKLINK_F32, work, error);
    });
  }
}

TEST_F(CRefusals, OfRanksThatAreNotThere) {
  for (const int rank : {-1, 1, INT32_MAX}) {
    const auto no_root = [&](auto call) { refused("the root is rank", call); };
    no_root([&](Work work, Error error) {
      return ranklink_broadcast(group_, &output_, 1, RANKLINK_F32, rank, work, error);
    });
    no_root([&](Work work, Error error) {
      return ranklink_reduce(group_, &input_, &output_, 1, RANKLINK_F32, RANKLINK_SUM, rank, work,
                             error);
    });
    no_root([&](Work work, Error error) {
      return ranklink_gather(group_, &input_, &output_, 1, RANKLINK_F32, rank, work, error);
    });
    no_root([&](Work work, Error error) {
      return ranklink_scatter(group_, &input_, &output_, 1, RANKLINK_F32, rank, work, error);
    });
    no_root([&](Work work, Error error) {
      return ranklink_broadcast_shared(group_, buffer_.get(), 1, RANKLINK_F32, rank, 0, work,
                                       error);
    });
    refused("the peer is rank", [&](Work work, Error error) {
      return ranklink_send(group_, &input_, 1, RANKLINK_F32, rank, work, error);
    });
    refused("the peer is rank", [&](Work work, Error error) {
      return ranklink_recv(group_, &output_, 1, RANKLINK_F32, rank, work, error);
    });
  }
}

TEST_F(CRefusals, OfMoreThanThereIs) {
  for (const auto& [count, offset] :
       {std::pair<std::size_t, std::size_t>{17, 0}, {1, 64}, {1, SIZE_MAX}, {15, 8}}) {
    refused("don't fit", [&, count = count, offset = offset](Work work, Error error) {
      return ranklink_all_reduce_shared(group_, buffer_.get(), count, RANKLINK_F32, RANKLINK_SUM,
                                        offset, work, error);
    });
  }
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 8}) {
    refused("more than memory holds", [&](Work work, Error error) {
      return ranklink_all_gather_shared(group_, buffer_.get(), count, RANKLINK_F64, 0, work, error);
    });
    refused("more than memory holds", [&](Work work, Error error) {
      return ranklink_all_reduce(group_, &input_, &output_, count, RANKLINK_F64, RANKLINK_SUM, work,
                                 error);
    });
  }
}

}  // namespace
