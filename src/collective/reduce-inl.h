// The kernels of reduce(), which reduce.cpp compiles once for each instruction set: no include
// guard, and nothing of the standard library in a function's body, since a copy of it compiled for
// AVX-512 could be the one that the linker keeps for all.

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "collective/reduce_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranklink {
namespace {
namespace HWY_NAMESPACE {

struct Sum {
  template <class V>
  static HWY_INLINE V of(V a, V b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class V>
  static HWY_INLINE V of(V a, V b) {
    return hn::Mul(a, b);
  }
};
// Highway's Min and Max differ between targets in what they make of NaN and of -0.
template <bool kMax>
struct Extreme {
  template <class V>
  static HWY_INLINE V of(V a, V b) {
    if constexpr (!hwy::IsFloat<hn::TFromV<V>>()) {
      return kMax ? hn::Max(a, b) : hn::Min(a, b);
    } else {
      const auto beyond = kMax ? hn::Gt(b, a) : hn::Lt(b, a);
      return hn::IfThenElse(hn::Or(beyond, is_nan(b)), b, a);
    }
  }

 private:
  // By its bits, since clang 14 turns a comparison of what was f16 into one of f16, lane by lane.
  template <class V>
  static HWY_INLINE auto is_nan(V v) {
    const hn::DFromV<V> d;
    const hn::RebindToSigned<decltype(d)> di;
    const auto magnitude = hn::BitCast(di, hn::Abs(v));
    return hn::RebindMask(d, hn::Gt(magnitude, hn::BitCast(di, hn::Inf(d))));
  }
};

template <class Op, class V>
HWY_INLINE V apply(V a, V b) {
  return Op::of(a, b);
}
template <class Op, class V>
HWY_INLINE Pair<V> apply(Pair<V> a, Pair<V> b) {
  return {Op::of(a.even, b.even), Op::of(a.odd, b.odd)};
}
template <class V>
HWY_INLINE V divide(V a, V by) {
  return hn::Div(a, by);
}
template <class V>
HWY_INLINE Pair<V> divide(Pair<V> a, V by) {
  return {hn::Div(a.even, by), hn::Div(a.odd, by)};
}

// The operation `Op` on elements of `Format`; `kSize` is the number of inputs, or 0 for any.
template <class Format, class Op, std::size_t kSize>
class Reducer {
  using Lane = typename Format::Lane;
  using Stored = typename Format::Stored;
  using Full = hn::ScalableTag<Lane>;
  static constexpr std::size_t kVector = hn::MaxLanes(Full()) * sizeof(Stored);  // bytes

 public:
  static HWY_NOINLINE void run(const Run& run) {
    const Reducer reducer(run);
    const std::size_t end = run.count * Format::kBytes;
    std::size_t at = 0;
    bool streaming = run.streaming;
    if (streaming || end >= 8 * kVector) {
      // A vector that lies across two cache lines takes twice the time to store.
      std::size_t head = -reinterpret_cast<std::uintptr_t>(run.output) % kVector;
      if (head % Format::kBytes != 0) {
        streaming = false;
      } else {
        if (head > end) head = end;
        Reducer<Format, Op, 0>::few(run, 0, head);
        at = head;
      }
    }
    for (; end - at >= 4 * kVector; at += 4 * kVector) reducer.four(at, streaming);
    for (; end - at >= kVector; at += kVector) {
      reducer.template one<sizeof(Stored)>(Full(), at, streaming);
    }
    if (at != end) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
      // g++ 12 leaves this out before a call of a function that it knows, and then also at the
      // end: the caller's SSE instructions would take ten times as long.
      _mm256_zeroupper();
#endif
      Reducer<Format, Op, 0>::few(run, at, end);
    }
    if (streaming) hwy::FlushStream();
  }

  // From `at` to `end`, less than a vector: by ever shorter ones, which give the same to the bit.
  static HWY_NOINLINE void few(const Run& run, std::size_t at, std::size_t end) {
    shorter(Full(), Reducer(run), at, end - at);
  }

  static HWY_INLINE bool is_few(const Run& run) { return run.count < kVector / Format::kBytes; }

 private:
  HWY_INLINE explicit Reducer(const Run& run)
      : output_(run.output),
        second_(run.second),
        inputs_(run.inputs),
        size_(run.size),
        average_(run.average) {
    for (std::size_t i = 0; i != kSize; ++i) pointers_[i] = run.inputs[i];
  }

  template <class D>
  static HWY_INLINE void shorter(D d, const Reducer& reducer, std::size_t at, std::size_t bytes) {
    if constexpr (D::kPrivateN > 1) {
      const hn::Half<D> half;
      constexpr std::size_t kHalf = hn::MaxLanes(half) * sizeof(Stored);
      if ((bytes & kHalf) != 0) {
        reducer.template one<sizeof(Stored)>(half, at, false);
        at += kHalf;
      }
      shorter(half, reducer, at, bytes);
    } else if constexpr (Format::kBytes < sizeof(Stored)) {
      if ((bytes & Format::kBytes) != 0) reducer.template one<Format::kBytes>(d, at, false);
    }
  }

  HWY_INLINE std::size_t size() const { return kSize == 0 ? size_ : kSize; }
  HWY_INLINE const std::byte* input(std::size_t i) const {
    return kSize == 0 ? inputs_[i] : pointers_[i];
  }

  template <std::size_t kBytes = sizeof(Stored), class D>
  static HWY_INLINE auto load(D d, const std::byte* from) {
    return Format::decode(d, load_lanes<kBytes>(hn::Rebind<Stored, D>(), from));
  }
  static HWY_INLINE void stream(hn::Vec<hn::Rebind<Stored, Full>> v, std::byte* to) {
    hn::Stream(v, hn::Rebind<Stored, Full>(), reinterpret_cast<Stored*>(to));
  }
  static HWY_INLINE void store(hn::Vec<hn::Rebind<Stored, Full>> v, std::byte* to) {
    store_lanes<sizeof(Stored)>(hn::Rebind<Stored, Full>(), v, to);
  }

  // A vector of D, or kBytes of its only lane.
  template <std::size_t kBytes, class D>
  HWY_INLINE void one(D d, std::size_t at, bool streaming) const {
    const hn::Rebind<Stored, D> ds;
    auto v = load<kBytes>(d, input(0) + at);
    for (std::size_t i = 1; i != size(); ++i) {
      v = apply<Op>(v, load<kBytes>(d, input(i) + at));
    }
    if constexpr (hwy::IsFloat<Lane>()) {
      if (average_) v = divide(v, hn::Set(d, static_cast<Lane>(size())));
    }
    const auto stored = Format::encode(d, v);
    if (streaming) {
      if constexpr (hn::MaxLanes(d) == hn::MaxLanes(Full())) stream(stored, output_ + at);
    } else {
      store_lanes<kBytes>(ds, stored, output_ + at);
    }
    if (second_ != nullptr) store_lanes<kBytes>(ds, stored, second_ + at);
  }

  // Spelt out, since compilers differ in whether they keep an array of vectors in registers.
  HWY_INLINE void four(std::size_t at, bool streaming) const {
    const Full d;
    const std::byte* from = input(0) + at;
    auto v0 = load(d, from);
    auto v1 = load(d, from + kVector);
    auto v2 = load(d, from + 2 * kVector);
    auto v3 = load(d, from + 3 * kVector);
    for (std::size_t i = 1; i != size(); ++i) {
      from = input(i) + at;
      v0 = apply<Op>(v0, load(d, from));
      v1 = apply<Op>(v1, load(d, from + kVector));
      v2 = apply<Op>(v2, load(d, from + 2 * kVector));
      v3 = apply<Op>(v3, load(d, from + 3 * kVector));
    }
    if constexpr (hwy::IsFloat<Lane>()) {
      if (average_) {
        const auto by = hn::Set(d, static_cast<Lane>(size()));
        v0 = divide(v0, by);
        v1 = divide(v1, by);
        v2 = divide(v2, by);
        v3 = divide(v3, by);
      }
    }
    const auto stored0 = Format::encode(d, v0);
    const auto stored1 = Format::encode(d, v1);
    const auto stored2 = Format::encode(d, v2);
    const auto stored3 = Format::encode(d, v3);
    std::byte* to = output_ + at;
    if (streaming) {
      stream(stored0, to);
      stream(stored1, to + kVector);
      stream(stored2, to + 2 * kVector);
      stream(stored3, to + 3 * kVector);
    } else {
      store(stored0, to);
      store(stored1, to + kVector);
      store(stored2, to + 2 * kVector);
      store(stored3, to + 3 * kVector);
    }
    if (second_ != nullptr) {
      to = second_ + at;
      store(stored0, to);
      store(stored1, to + kVector);
      store(stored2, to + 2 * kVector);
      store(stored3, to + 3 * kVector);
    }
  }

  std::byte* output_;
  std::byte* second_;
  const std::byte* const* inputs_;
  std::size_t size_;
  const std::byte* pointers_[kSize == 0 ? 1 : kSize];
  bool average_;
};

template <class Format, class Op>
void reduce_any(const Run& run) {
  using Any = Reducer<Format, Op, 0>;
  if (Any::is_few(run)) return Any::few(run, 0, run.count * Format::kBytes);
  Any::run(run);
}

// Sums of few inputs, the case that matters most.
template <class Format>
void reduce_sum(const Run& run) {
  using Any = Reducer<Format, Sum, 0>;
  if (Any::is_few(run)) return Any::few(run, 0, run.count * Format::kBytes);
  switch (run.size) {
    case 2:
      return Reducer<Format, Sum, 2>::run(run);
    case 3:
      return Reducer<Format, Sum, 3>::run(run);
    case 4:
      return Reducer<Format, Sum, 4>::run(run);
    default:
      return Any::run(run);
  }
}

void copy_streaming_of_target(std::byte* to, const std::byte* from, std::size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  __builtin_memcpy(to, from, bytes);
#else
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kVector = hn::MaxLanes(d);
  constexpr std::size_t kLine = 64;
  std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  if (head > bytes) head = bytes;
  __builtin_memcpy(to, from, head);
  std::size_t at = head;
  for (; bytes - at >= kLine; at += kLine) {
    for (std::size_t part = at; part != at + kLine; part += kVector) {
      hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from + part)), d,
                 reinterpret_cast<std::uint8_t*>(to + part));
    }
  }
  __builtin_memcpy(to + at, from + at, bytes - at);
  hwy::FlushStream();
#endif
}

template <class Format>
constexpr std::array<Kernel, 5> kFloatKernels = {
    reduce_sum<Format>, reduce_any<Format, Product>, reduce_any<Format, Extreme<false>>,
    reduce_any<Format, Extreme<true>>, reduce_sum<Format>};

// Sums and products wrap alike whether signed or not; unsigned, C++ lets them.
template <typename T, Kernel product>
constexpr std::array<Kernel, 5> kIntegerKernels = {
    reduce_any<Native<hwy::MakeUnsigned<T>>, Sum>, product, reduce_any<Native<T>, Extreme<false>>,
    reduce_any<Native<T>, Extreme<true>>, reduce_integers<T, ReduceOp::avg>};

constexpr Target kTarget = {
    .name = &HWY_STR(HWY_NAMESPACE)[2],
    .kernels = {{kFloatKernels<Float16>, kFloatKernels<Bfloat16>, kFloatKernels<Native<float>>,
                 kFloatKernels<Native<double>>,
                 kIntegerKernels<std::int8_t, reduce_integers<std::int8_t, ReduceOp::prod>>,
                 kIntegerKernels<std::uint8_t, reduce_integers<std::uint8_t, ReduceOp::prod>>,
                 kIntegerKernels<std::int32_t, reduce_any<Native<std::uint32_t>, Product>>,
                 kIntegerKernels<std::int64_t, reduce_integers<std::int64_t, ReduceOp::prod>>}},
    .copy_streaming = copy_streaming_of_target,
};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ranklink
HWY_AFTER_NAMESPACE();
