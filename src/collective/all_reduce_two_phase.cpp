#include "collective/pieces.h"

namespace ranklink {
namespace {

// Reduce-scatter, then all-gather, on one block at a time: each rank reduces one part of a block
// from all ranks' outboxes, and all copy its result from its outbox. A rank puts what the next
// block needs before it waits for results, and results before it waits for the next block, so that
// ranks wait for each other only when they drift apart.
class TwoPhase {
 public:
  TwoPhase(Workspace& work, const Call& call)
      : work_(work),
        routes_(work.routes),
        call_(call),
        element_(size_of(call.type)),
        ranks_(static_cast<std::size_t>(routes_.size())),
        blocks_(call.count, piece_elements(routes_, call, ranks_) * ranks_),
        streaming_(call.count * element_ >= kStreamingBytes && call.input != call.output) {}

  void run() {
    scatter(0);
    for (std::size_t block = 0; block < blocks_.number(); ++block) {
      reduce_part(block);
      if (block + 1 < blocks_.number()) scatter(block + 1);
      gather(block);
    }
  }

 private:
  // A rank's part of a block: whole cache lines but for the last one's end.
  struct Part {
    std::size_t begin;  // bytes
    std::size_t count;
  };
  Part part(std::size_t block, int rank) const {
    const std::size_t line = 64 / element_;
    const std::size_t count = blocks_.size(block);
    const std::size_t share = ((count + ranks_ - 1) / ranks_ + line - 1) / line * line;
    const std::size_t begin = std::min(count, share * static_cast<std::size_t>(rank));
    return {(blocks_.begin(block) + begin) * element_, std::min(share, count - begin)};
  }

  void scatter(std::size_t block) {
    for_peers(routes_, [&](int peer) {
      const Part theirs = part(block, peer);
      routes_.put(peer, as_message(work_, input_of(call_) + theirs.begin, theirs.count * element_));
    });
  }

  void reduce_part(std::size_t block) {
    const Part mine = part(block, routes_.rank());
    const std::size_t bytes = mine.count * element_;
    std::byte* result = routes_.reserve(bytes);
    const std::byte* input = input_of(call_) + mine.begin;
    std::byte* output = output_of(call_) + mine.begin;
    if (work_.outbox.past_caches(bytes)) {  // which reduce() does for the first of its two outputs
      reduce_messages(work_, call_, input, result, output, mine.count, true);
    } else {
      reduce_messages(work_, call_, input, output, result, mine.count, streaming_);
    }
    put_to_all(routes_, {result, bytes});
  }

  void gather(std::size_t block) {
    for_peers(routes_, [&](int peer) {
      const Part theirs = part(block, peer);
      const ByteView result = routes_.wait(peer, theirs.count * element_);
      copy_bytes(output_of(call_) + theirs.begin, result.data(), result.size(), streaming_);
      routes_.release(peer);
    });
  }

  Workspace& work_;
  Routes& routes_;
  const Call& call_;
  std::size_t element_;
  std::size_t ranks_;
  Pieces blocks_;
  bool streaming_;
};

void run(Workspace& work, const Call& call) { TwoPhase(work, call).run(); }

}  // namespace

const Algorithm kAllReduceTwoPhase = {Collective::all_reduce, "two_phase", Needs::messages, run};

}  // namespace ranklink
