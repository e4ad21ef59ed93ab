#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ranklink/collective.hpp"

namespace ranklink {

/// What the ranks hold before a collective: known to all, different at each rank and place.
///
/// It repeats after kPeriod elements, so that what is expected fits in a small table whatever the
/// size; that is a prime, so that what lands some blocks away from its place is still found out.
struct TestData {
  static constexpr std::size_t kPeriod = 65521;

  DataType type = DataType::f32;
  std::optional<ReduceOp> op;  ///< none: elements are moved, and are any bits at all
  int ranks = 1;
  std::uint64_t seed = 0;

  /// The bits of the element at `index` of the input of `rank`.
  std::uint64_t bits(int rank, std::size_t index) const;
  /// Fills `memory` with the input of `rank`, from its first element on.
  void fill(int rank, std::span<std::byte> memory) const;
};

/// What a stretch of elements must be after a collective, computed without it.
class Reference {
 public:
  /// `count` elements of the input of `rank`, from `first` on.
  static Reference moved(const TestData& data, int rank, std::size_t first, std::size_t count);
  /// The reduction of those elements of all ranks: in 64 bits for integers, which must be met
  /// exactly, as min and max must; in f64 for the rest, with the error that their type allows.
  static Reference reduced(const TestData& data, std::size_t first, std::size_t count);

  /// How many of the `count` elements at `got` are wrong.
  std::size_t count_wrong(const std::byte* got) const;

 private:
  struct Range {
    double value;
    double tolerance;
  };

  Reference(DataType type, std::size_t count) : type_(type), count_(count) {}
  std::size_t count_unequal(const std::byte* got) const;
  std::size_t count_outside(const std::byte* got) const;

  DataType type_;
  std::size_t count_;
  // One of these, of a period or less.
  std::vector<std::byte> exact_;
  std::vector<Range> ranges_;
};

/// The value of an element of a type of floating point.
double float_value(DataType type, std::uint64_t bits);

}  // namespace ranklink
