#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ranklink/collective.hpp"

namespace ranklink {

/// What a reduction does to elements.
struct Reduction {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
};

/// output[i] = op over inputs[0][i], inputs[1][i], ... in that order, for `count` elements; `avg`
/// divides by inputs.size(), which is at least 1. If `second` isn't null the result is stored there
/// too. `output` and `second` may each be exactly the same memory as one of the inputs, else they
/// must not overlap any, nor each other. No pointer needs alignment.
///
/// The result is the same to the last bit on every CPU, but for the payload of a NaN: f16 and bf16
/// are computed in f32 over all inputs and rounded once, to nearest even; f32 and f64 in their own
/// precision; integers wrap. One input is copied as it is. `min` and `max` give NaN where any input
/// has one; of zeros of both signs they give the first.
///
/// `streaming`: `output` (not `second`) is written past the caches, and the stores are fenced
/// before return. That is for what nobody reads soon. Where it can't be done (an output that isn't
/// aligned to its elements, integer arithmetic that has no vector instructions, a CPU without AVX2)
/// the stores are ordinary ones.
void reduce(Reduction reduction, std::byte* output, std::byte* second,
            std::span<const std::byte* const> inputs, std::size_t count, bool streaming = false);

/// memcpy past the caches, fenced before return.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

/// For tests: the instruction sets that the above are compiled for and this CPU has, best first,
/// and the choice of one of them for all calls from then on. The best is used by default.
std::vector<std::string_view> reduce_targets();
void use_reduce_target(std::string_view name);

}  // namespace ranklink
