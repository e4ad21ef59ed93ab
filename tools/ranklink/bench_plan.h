#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ranklink/collective.hpp"

namespace ranklink {

/// What `ranklink bench` measures: one row of its table of kinds.
struct BenchKind {
  std::string_view name;
  Collective collective;
  bool reduces = false;     ///< has an op
  bool rooted = false;      ///< has a root
  bool blocks_in = false;   ///< the input is a block a rank
  bool blocks_out = false;  ///< the output is a block a rank
  bool shared = false;      ///< works on a SharedBuffer
  bool in_place = false;    ///< works in place
};

struct BenchSize {
  std::size_t bytes = 0;  ///< as nccl-tests count them: all blocks where there are blocks
  std::size_t count = 0;  ///< of the call: a block's elements where there are blocks
};

/// What all ranks do.
struct BenchPlan {
  const BenchKind* kind = nullptr;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool shared = false;
  bool in_place = false;  ///< also where it can't be otherwise
  bool check = true;
  std::size_t iterations = 0;  ///< 0: as many as take a while
  std::vector<BenchSize> sizes;

  std::size_t input_bytes(const BenchSize& size, int ranks) const;
  std::size_t output_bytes(const BenchSize& size, int ranks) const;
  /// What one rank allocates for the largest size.
  std::size_t memory_of_rank(int ranks) const;
  /// busbw / algbw, as nccl-tests have it.
  double bus_factor(int ranks) const;
};

/// The part of the command line that decides what is measured; `bench` hands it on to its ranks.
class BenchOptions {
 public:
  void add(CLI::App& command);
  /// Throws Error(bad_argument) for what doesn't go together.
  BenchPlan plan(int ranks) const;
  /// The same as words, as they were given.
  std::vector<std::string> words() const;

 private:
  void refuse_unused(const BenchKind& kind) const;
  std::vector<BenchSize> sizes(const BenchKind& kind, DataType type, int ranks) const;
  CLI::Option* add_valued(CLI::App& command, const std::string& name, std::string& value,
                          const std::string& help, const std::string& type_name);

  std::string collective_;
  std::string min_ = "8";
  std::string max_ = "64M";
  std::string step_factor_ = "2";
  std::string dtype_ = "f32";
  std::string op_ = "sum";
  std::string root_ = "0";
  std::string iterations_;
  bool shared_ = false;
  bool in_place_ = false;
  bool check_ = false;  // as it is without it
  bool no_check_ = false;
  std::vector<CLI::Option*> valued_;
};

/// `8`, `4K`, `64M`: in the largest binary unit that has no remainder.
std::string binary_size_text(std::uint64_t bytes);

}  // namespace ranklink
