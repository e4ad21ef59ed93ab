#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <ranges>
#include <span>

#include "ranklink/collective.hpp"
#include "ranklink/error.hpp"
#include "ranklink/options.hpp"
#include "ranklink/report.hpp"
#include "ranklink/shared_buffer.hpp"
#include "ranklink/visibility.hpp"
#include "ranklink/work.hpp"

namespace ranklink {

/// A group of ranks that have found each other, know how they reach each other's memory, and agree
/// on it.
///
/// All ranks call the same operations in the same order, with the same counts, types and roots. A
/// group is used by one thread at a time; different groups may be used by different threads at
/// once, but split, make_shared_buffer and register_memory by one thread of a process at a time.
/// Every call that waits has a deadline (RANKLINK_OP_TIMEOUT) and throws Error when it passes or
/// when any rank fails; after an Error the group is good for nothing but its destructor, report()
/// and rank numbers.
///
/// Counts are in elements and may be 0; pointers need no alignment. Input and output are the same
/// memory (where a function says what `in place` means, exactly that) or don't overlap at all. All
/// ranks get bitwise the same result. Errors and reports name ranks by their number in the job,
/// also those of subgroups.
class RANKLINK_PUBLIC Group {
 public:
  /// Brings the group up, or throws Error on every rank. Bounded by RANKLINK_JOIN_TIMEOUT.
  static Group join(const Options& options = {});

  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  /// Leaves the group. Takes part in no group operation and doesn't wait for peers; work that still
  /// goes on ends with an Error.
  ~Group();

  int rank() const;
  int size() const;
  const Report& report() const;

  /// Does one collective. The functions below are short for it.
  void run(const Call& call);
  /// Starts one, which goes on without the caller's help. Those of one group are done in the order
  /// in which they were started; run() waits for the earlier ones first.
  Work start(const Call& call);

  /// `output` is the reduction of all ranks' `input`: `count` elements each.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type,
                  ReduceOp op = ReduceOp::sum) {
    run({Collective::all_reduce, input, output, count, type, op});
  }
  /// The same in place, for a contiguous range of a type that has a DataType.
  template <std::ranges::contiguous_range Range>
  void all_reduce(Range&& data, ReduceOp op = ReduceOp::sum) {
    using T = std::ranges::range_value_t<Range>;
    all_reduce(std::ranges::data(data), std::ranges::data(data), std::ranges::size(data),
               data_type<T>(), op);
  }
  /// `output` is the `count` elements of rank 0, then those of rank 1, and so on. In place where
  /// `input` is this rank's part of `output`.
  void all_gather(const void* input, void* output, std::size_t count, DataType type) {
    run({Collective::all_gather, input, output, count, type});
  }
  /// `input` is size() blocks of `count` elements; `output` the reduction of all ranks' block that
  /// has this rank's number. In place where `output` is that block.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                      ReduceOp op = ReduceOp::sum) {
    run({Collective::reduce_scatter, input, output, count, type, op});
  }
  /// Copies `data` of `root` to all.
  void broadcast(void* data, std::size_t count, DataType type, int root) {
    run({Collective::broadcast, data, data, count, type, ReduceOp::sum, root});
  }
  /// As all_reduce, with a result at `root` only; the others' `output` is not used.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
              int root) {
    run({Collective::reduce, input, output, count, type, op, root});
  }
  /// As all_gather, with a result at `root` only.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root) {
    run({Collective::gather, input, output, count, type, ReduceOp::sum, root});
  }
  /// `output` is the block of `count` elements of `root`'s `input` that has this rank's number. In
  /// place where, at root, `output` is that block.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root) {
    run({Collective::scatter, input, output, count, type, ReduceOp::sum, root});
  }
  /// Block p of `input` (`count` elements) goes to rank p, whose block r of `output` comes from
  /// rank r. In place where they are the same.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type) {
    run({Collective::all_to_all, input, output, count, type});
  }
  /// As all_to_all, with a count and an offset, in elements, for each rank. What a rank receives of
  /// a peer is what that peer sends it. Not in place.
  void all_to_all_v(const void* input, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> send_offsets, void* output,
                    std::span<const std::size_t> recv_counts,
                    std::span<const std::size_t> recv_offsets, DataType type);
  /// Returns when `data` may be used again. It may wait for the receiver, so ranks that send to
  /// each other before they receive need exchange(). Messages between two ranks, and the
  /// collectives that both take part in, come in the order in which they were called.
  void send(const void* data, std::size_t count, DataType type, int to);
  /// Receives exactly `count` elements.
  void recv(void* data, std::size_t count, DataType type, int from);
  /// All of these sends and receives together: none waits for another, but those with one peer in
  /// one direction, which keep their order.
  void exchange(std::span<const Transfer> transfers);
  /// Returns when all ranks have called it.
  void barrier() { run({Collective::barrier}); }

  /// Groups of those that give the same `color`, ranked by `key`, then by rank here. Nothing for a
  /// negative color. All ranks call it together. The new groups stand beside this one, may overlap
  /// others, and may be used at the same time. A failure in one fails all groups of the job.
  std::optional<Group> split(int color, int key = 0);

  /// Memory of `size` bytes on every rank that the others can read and write, zeroed. All ranks
  /// call it together.
  SharedBuffer make_shared_buffer(std::size_t size);
  /// Makes `memory`, of the same size on all ranks, a SharedBuffer in place: its contents stay.
  /// It must be whole pages of private memory, three at least (more beyond 21 ranks), which no
  /// thread uses meanwhile and no other registration covers. When the SharedBuffer ends, it is
  /// private again, with its contents. Throws Error(bad_argument) for memory that can't be shared
  /// so.
  SharedBuffer register_memory(std::span<std::byte> memory);

  /// Collectives on a SharedBuffer of this group, in place and without copies where the routes are
  /// `mapped`. `offset` is in bytes, the same on all ranks. When one returns, this rank's own
  /// memory may be used again; a peer's, as after any collective, only after a barrier.
  void all_reduce(SharedBuffer& buffer, std::size_t count, DataType type,
                  ReduceOp op = ReduceOp::sum, std::size_t offset = 0);
  /// Each rank's part of `count` elements stands at its place of the result.
  void all_gather(SharedBuffer& buffer, std::size_t count, DataType type, std::size_t offset = 0);
  /// The result of `count` elements is the rank's own block; the other blocks hold nothing of use.
  void reduce_scatter(SharedBuffer& buffer, std::size_t count, DataType type,
                      ReduceOp op = ReduceOp::sum, std::size_t offset = 0);
  void broadcast(SharedBuffer& buffer, std::size_t count, DataType type, int root,
                 std::size_t offset = 0);
  void all_to_all(SharedBuffer& buffer, std::size_t count, DataType type, std::size_t offset = 0);

  /// Tells all ranks that this one can't go on: their next or present call throws an Error with
  /// this rank, `cause` and `remedy`.
  void fail(const std::string& cause, const std::string& remedy = {});

  class Impl;
  /// For ranklink's own tools.
  Impl& impl() { return *impl_; }

 private:
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranklink
