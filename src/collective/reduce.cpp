#include "collective/reduce.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ranklink {
namespace {

// One call of reduce(), for a kernel.
struct Run {
  std::byte* output;
  std::byte* second;
  const std::byte* const* inputs;
  std::size_t size;  // of inputs, 2 or more
  std::size_t count;
  bool average;
  bool streaming;
};
using Kernel = void (*)(const Run&);

// What is compiled for one instruction set.
struct Target {
  std::string_view name;
  std::array<std::array<Kernel, 5>, 8> kernels;  // by DataType and ReduceOp
  void (*copy_streaming)(std::byte*, const std::byte*, std::size_t);
};

// The integer arithmetic that vectors lack: an element at a time.
template <typename T, ReduceOp op>
void reduce_integers(const Run& run) {
  using Bits = std::make_unsigned_t<T>;
  using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  using Quotient = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  const auto divisor = static_cast<Quotient>(run.size);
  for (std::size_t at = 0; at != run.count * sizeof(T); at += sizeof(T)) {
    Bits value;
    std::memcpy(&value, run.inputs[0] + at, sizeof value);
    for (std::size_t i = 1; i != run.size; ++i) {
      Bits other;
      std::memcpy(&other, run.inputs[i] + at, sizeof other);
      const Wide a = value;
      value = static_cast<Bits>(op == ReduceOp::prod ? a * other : a + other);
    }
    if (op == ReduceOp::avg) value = static_cast<Bits>(Quotient{static_cast<T>(value)} / divisor);
    std::memcpy(run.output + at, &value, sizeof value);
    if (run.second != nullptr) std::memcpy(run.second + at, &value, sizeof value);
  }
}

}  // namespace
}  // namespace ranklink

// Highway compiles reduce-inl.h once for each of these targets: the compiler's baseline, AVX2 and
// AVX3 (its name for AVX-512 as of Skylake).
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// A virtual machine may lack these, and no contraction to a fused multiply-add can differ.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_BMI2_FMA
#define HWY_BROKEN_EMU128 1   // one scalar fallback, whatever the compiler
#define HWY_IS_DEBUG_BUILD 0  // its assertions need libhwy.so, of which we use only headers
#define HWY_TARGET_INCLUDE "collective/reduce-inl.h"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "collective/reduce-inl.h"

namespace ranklink {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
         (c & bit_F16C) != 0;
}
bool has_avx3() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0;
}
#endif

// Best first.
std::vector<const Target*> supported() {
  std::vector<const Target*> targets;
#if HWY_TARGETS & HWY_AVX3
  if (has_avx3()) targets.push_back(&N_AVX3::kTarget);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (has_avx2()) targets.push_back(&N_AVX2::kTarget);
#endif
#if HWY_TARGETS & HWY_NEON
  targets.push_back(&N_NEON::kTarget);
#endif
#if HWY_TARGETS & HWY_SCALAR
  targets.push_back(&N_SCALAR::kTarget);
#endif
  return targets;
}

std::atomic<const Target*> g_target{nullptr};

const Target& target() {
  const Target* known = g_target.load(std::memory_order_relaxed);
  if (known == nullptr) [[unlikely]] {
    known = supported().front();
    g_target.store(known, std::memory_order_relaxed);
  }
  return *known;
}

}  // namespace

void reduce(Reduction reduction, std::byte* output, std::byte* second,
            std::span<const std::byte* const> inputs, std::size_t count, bool streaming) {
  if (count == 0) return;
  if (inputs.size() == 1) {
    const std::size_t bytes = count * size_of(reduction.type);
    if (second != nullptr && second != inputs[0]) std::memcpy(second, inputs[0], bytes);
    if (output == inputs[0]) return;
    if (streaming) {
      copy_streaming(output, inputs[0], bytes);
    } else {
      std::memcpy(output, inputs[0], bytes);
    }
    return;
  }
  const auto& kernels = target().kernels[static_cast<std::size_t>(reduction.type)];
  kernels[static_cast<std::size_t>(reduction.op)]({.output = output,
                                                   .second = second,
                                                   .inputs = inputs.data(),
                                                   .size = inputs.size(),
                                                   .count = count,
                                                   .average = reduction.op == ReduceOp::avg,
                                                   .streaming = streaming});
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) target().copy_streaming(to, from, bytes);
}

std::vector<std::string_view> reduce_targets() {
  std::vector<std::string_view> names;
  for (const Target* target : supported()) names.push_back(target->name);
  return names;
}

void use_reduce_target(std::string_view name) {
  for (const Target* target : supported()) {
    if (target->name == name) g_target = target;
  }
}

}  // namespace ranklink
