#pragma once

#include <bit>
#include <random>
#include <sstream>

#include "call_memory.h"

namespace ranklink {

inline constexpr DataType kAllTypes[] = {DataType::f16, DataType::bf16, DataType::f32,
                                         DataType::f64, DataType::i8,   DataType::u8,
                                         DataType::i32, DataType::i64};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::avg};

inline bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

/// Whether ranks of these kinds can run it. Direct algorithms are for ranks that all share memory.
inline bool can_run(const Algorithm& algorithm, RankThreads::Kinds kinds) {
  if (algorithm.needs == Needs::pull && !can_pull()) return false;
  return algorithm.needs == Needs::messages || kinds == RankThreads::all_mapped;
}

/// How a call is made.
struct CallCase {
  const Algorithm* algorithm = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool in_place = false;
  std::size_t offset = 0;  ///< of the memory, from a cache line

  std::string text() const {
    std::ostringstream out;
    out << to_string(algorithm->collective) << "=" << algorithm->name << " " << count << " "
        << to_string(type) << " " << to_string(op) << ", root " << root
        << (in_place ? ", in place" : "") << ", offset " << offset;
    return out.str();
  }
};

/// One call as all ranks make it: their memory, and what must be there afterwards. The answers are
/// worked out here, by the definitions.
class PreparedCall : public Prepared {
 public:
  PreparedCall(const CallCase& how, int ranks, std::uint32_t seed)
      : how_(how), ranks_(static_cast<std::size_t>(ranks)), random_(seed), calls_(ranks_) {
    if (how.algorithm->needs == Needs::shared_buffer) how_.in_place = true;
    if (how.algorithm->collective == Collective::all_to_all_v) {
      prepare_all_to_all_v();
    } else if (how.algorithm->collective != Collective::barrier) {
      prepare();
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      Call& call = calls_[rank];
      call.collective = how_.algorithm->collective;
      call.count = how_.count;
      call.type = how_.type;
      call.op = how_.op;
      call.root = how_.root;
      if (how_.count == 0) call.input = call.output = nullptr;
    }
  }
  void run(Workspace& work) const override {
    if (how_.algorithm->needs == Needs::shared_buffer) work.shared = shared_;
    do_call(work, *how_.algorithm, call(work.routes.rank()));
  }
  std::string text() const override { return how_.text(); }
  const Call& call(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }

 private:
  // Numbers whose sums round, with some of any bits between them.
  Bytes samples(std::size_t count) {
    const std::size_t size = size_of(how_.type);
    Bytes bytes(count * size);
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      std::uint64_t bits = random_();
      const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)), -61);
      if ((bits & 0x3f) != 0) {
        if (how_.type == DataType::f16) bits = kF16.encode(static_cast<float>(value));
        if (how_.type == DataType::bf16) bits = kBf16.encode(static_cast<float>(value));
        if (how_.type == DataType::f32)
          bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
        if (how_.type == DataType::f64) bits = std::bit_cast<std::uint64_t>(value);
      } else {
        bits = random_();
      }
      std::memcpy(bytes.data() + at, &bits, size);
    }
    return bytes;
  }

  Bytes block(const Bytes& of, std::size_t i) const {
    const auto begin = of.begin() + static_cast<std::ptrdiff_t>(i * block_);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(block_));
  }

  void prepare() {
    const Collective collective = how_.algorithm->collective;
    const auto root = static_cast<std::size_t>(how_.root);
    const bool many_in = collective == Collective::reduce_scatter ||
                         collective == Collective::scatter || collective == Collective::all_to_all;
    const bool many_out = collective == Collective::all_gather ||
                          collective == Collective::gather || collective == Collective::all_to_all;
    block_ = how_.count * size_of(how_.type);
    const std::size_t in_bytes = block_ * (many_in ? ranks_ : 1);
    const std::size_t out_bytes = block_ * (many_out ? ranks_ : 1);
    std::vector<Bytes> inputs;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      inputs.push_back(samples(in_bytes / size_of(how_.type)));
    }
    const std::vector<Bytes> outputs = answers(inputs);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const bool gives =
          (collective != Collective::scatter && collective != Collective::broadcast) ||
          rank == root;
      const bool takes =
          (collective != Collective::gather && collective != Collective::reduce) || rank == root;
      std::byte* input = nullptr;
      std::byte* output = nullptr;
      if (how_.in_place || collective == Collective::broadcast) {
        input = output = make(std::max(in_bytes, out_bytes), how_.offset);
        if (how_.algorithm->needs == Needs::shared_buffer) shared_.push_back(input);
        const bool in_part =
            collective == Collective::all_gather || (collective == Collective::gather && takes);
        const bool out_part = collective == Collective::reduce_scatter ||
                              (collective == Collective::scatter && gives);
        if (in_part) input += rank * block_;
        if (out_part) output += rank * block_;
      } else {
        input = make(in_bytes, how_.offset);
        output = make(out_bytes, how_.offset);
      }
      if (gives) copy(input, inputs[rank]);
      calls_[rank].input = input;
      calls_[rank].output = output;
      if (takes) {
        const bool all_same = collective == Collective::all_reduce && rank > 0;
        expect(rank, how_.type, output, outputs[rank],
               all_same ? static_cast<const std::byte*>(calls_[0].output) : nullptr);
      }
      // What is only read stays as it is.
      if (!how_.in_place && gives) expect(rank, how_.type, input, inputs[rank]);
    }
  }

  std::vector<Bytes> answers(const std::vector<Bytes>& inputs) const {
    const Collective collective = how_.algorithm->collective;
    const Reduction reduction{how_.type, how_.op};
    std::vector<Bytes> all(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      switch (collective) {
        case Collective::all_reduce:
        case Collective::reduce:
          all[rank] = rank == 0 ? reference(reduction, inputs) : all[0];
          break;
        case Collective::reduce_scatter: {
          std::vector<Bytes> blocks;
          for (const Bytes& input : inputs) blocks.push_back(block(input, rank));
          all[rank] = reference(reduction, blocks);
          break;
        }
        case Collective::all_gather:
        case Collective::gather:
          for (const Bytes& input : inputs) append(all[rank], input);
          break;
        case Collective::all_to_all:
          for (const Bytes& input : inputs) append(all[rank], block(input, rank));
          break;
        case Collective::scatter:
          all[rank] = block(inputs[static_cast<std::size_t>(how_.root)], rank);
          break;
        default:
          all[rank] = inputs[static_cast<std::size_t>(how_.root)];
      }
    }
    return all;
  }
  static void append(Bytes& to, const Bytes& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  // Counts of all sizes up to `count`, some of them none, with gaps between the blocks.
  void prepare_all_to_all_v() {
    const std::size_t element = size_of(how_.type);
    how_.in_place = false;
    std::vector<std::size_t> counts(ranks_ * ranks_);
    for (std::size_t& count : counts) {
      count = random_() % 3 == 0 ? random_() % 2 * how_.count : random_() % (how_.count + 1);
    }
    numbers_.resize(ranks_);
    std::vector<Bytes> blocks(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) blocks[i] = samples(counts[i]);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto& n = numbers_[rank];
      std::size_t in = 0;
      std::size_t out = 0;
      for (std::size_t peer = 0; peer < ranks_; ++peer) {
        n.send_counts.push_back(counts[rank * ranks_ + peer]);
        n.send_offsets.push_back(in += random_() % 3);
        in += n.send_counts.back();
        n.recv_counts.push_back(counts[peer * ranks_ + rank]);
        n.recv_offsets.push_back(out += random_() % 3);
        out += n.recv_counts.back();
      }
      Call& call = calls_[rank];
      std::byte* input = make(in * element, how_.offset);
      std::byte* output = make(out * element, how_.offset);
      for (std::size_t peer = 0; peer < ranks_; ++peer) {
        copy(input + n.send_offsets[peer] * element, blocks[rank * ranks_ + peer]);
        expect(rank, how_.type, output + n.recv_offsets[peer] * element,
               blocks[peer * ranks_ + rank]);
      }
      call.input = input;
      call.output = output;
      call.send_counts = n.send_counts.data();
      call.send_offsets = n.send_offsets.data();
      call.recv_counts = n.recv_counts.data();
      call.recv_offsets = n.recv_offsets.data();
    }
  }

  struct Numbers {
    std::vector<std::size_t> send_counts;
    std::vector<std::size_t> send_offsets;
    std::vector<std::size_t> recv_counts;
    std::vector<std::size_t> recv_offsets;
  };

  CallCase how_;
  std::size_t ranks_;
  std::size_t block_ = 0;
  std::mt19937_64 random_;
  std::vector<Call> calls_;
  std::vector<Numbers> numbers_;
  std::vector<std::byte*> shared_;
};

/// Makes all these calls, as many at a time as memory allows.
inline void expect_right(RankThreads& ranks, const std::vector<CallCase>& cases) {
  constexpr std::size_t kAtOnce = 32 << 20;  // bytes
  PreparedCalls calls;
  std::size_t bytes = 0;
  for (const CallCase& one : cases) {
    const auto seed = static_cast<std::uint32_t>(calls.size());
    calls.push_back(std::make_unique<PreparedCall>(one, ranks.size(), seed));
    bytes += calls.back()->bytes();
    if (bytes < kAtOnce && &one != &cases.back()) continue;
    ASSERT_NO_FATAL_FAILURE(expect_right(ranks, calls));
    calls.clear();
    bytes = 0;
  }
}

}  // namespace ranklink
