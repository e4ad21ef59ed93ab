// How elements lie in memory and in vectors: a part of reduce-inl.h, under its rules.

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ranklink {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Unaligned loads and stores of as many lanes as D has. A single one is moved as bytes, of which
// there may be fewer than it has: Highway would go through a pointer to it, which the language
// wants aligned.
template <std::size_t kBytes, class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const std::byte* from) {
  if constexpr (D::kPrivateN == 1) {
    hn::TFromD<D> lane{};
    __builtin_memcpy(&lane, from, kBytes);
    return hn::Set(d, lane);
  } else {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  }
}
template <std::size_t kBytes, class D>
HWY_INLINE void store_lanes(D d, hn::Vec<D> v, std::byte* to) {
  if constexpr (D::kPrivateN == 1) {
    const hn::TFromD<D> lane = hn::GetLane(v);
    __builtin_memcpy(to, &lane, kBytes);
  } else {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
}

// A format says how elements of `kBytes` lie in lanes of type `Stored`, and decodes a vector of
// those into what is computed with: as many lanes of type `Lane`, or pairs of them.
template <typename T>
struct Native {
  using Lane = T;
  using Stored = T;
  static constexpr std::size_t kBytes = sizeof(T);
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D, hn::Vec<D> v) {
    return v;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> encode(D, hn::Vec<D> v) {
    return v;
  }
};

template <class V>
struct Pair {
  V even;
  V odd;
};

// Two elements to a lane, since an f32 is a bf16 and 16 bits more: nothing moves between lanes.
struct Bfloat16 {
  using Lane = float;
  using Stored = std::uint32_t;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  static HWY_INLINE Pair<hn::Vec<D>> decode(D d, hn::Vec<hn::Rebind<Stored, D>> v) {
    const auto upper = hn::Set(hn::Rebind<Stored, D>(), 0xffff'0000);
    return {hn::BitCast(d, hn::ShiftLeft<16>(v)), hn::BitCast(d, hn::And(v, upper))};
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Stored, D>> encode(D d, Pair<hn::Vec<D>> v) {
    const auto upper = hn::Set(hn::Rebind<Stored, D>(), 0xffff'0000);
    return hn::Or(hn::ShiftRight<16>(round(d, v.even)), hn::And(round(d, v.odd), upper));
  }

 private:
  // Right in the upper half. A NaN stays one: the operands' lower halves are zero, and so is that
  // of a NaN which comes of them.
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Stored, D>> round(D, hn::Vec<D> v) {
    const hn::Rebind<Stored, D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  }
};

struct Float16 {
  using Lane = float;
  using Stored = std::uint16_t;
  static constexpr std::size_t kBytes = 2;
#if HWY_TARGET == HWY_SCALAR
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::Rebind<Stored, D>> v) {
    const hn::Rebind<std::uint32_t, D> du;
    const auto all = hn::PromoteTo(du, v);
    const auto sign = hn::ShiftLeft<16>(hn::And(all, hn::Set(du, 0x8000)));
    const auto rest = hn::ShiftLeft<13>(hn::And(all, hn::Set(du, 0x7fff)));
    const auto rebiased = hn::Add(rest, hn::Set(du, (127 - 15) << 23));
    // A subnormal: with the exponent of the smallest normal, whose leading one is then taken off.
    const auto smallest = hn::Set(du, (127 - 14) << 23);
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(rest, smallest)), hn::BitCast(d, smallest)));
    const auto special = hn::Or(rest, hn::Set(du, 0xff << 23));
    const auto positive =
        hn::IfThenElse(hn::Lt(rest, hn::Set(du, 1 << 23)), subnormal,
                       hn::IfThenElse(hn::Ge(rest, hn::Set(du, 0x1f << 23)), special, rebiased));
    return hn::BitCast(d, hn::Or(sign, positive));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Stored, D>> encode(D d, hn::Vec<D> v) {
    const hn::Rebind<std::uint32_t, D> du;
    const hn::Rebind<std::int32_t, D> di;
    const auto all = hn::BitCast(du, v);
    const auto bits = hn::And(all, hn::Set(du, 0x7fff'ffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(all, bits));
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
    const auto rebiased = hn::Sub(bits, hn::Set(du, (127 - 15) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, hn::Set(du, 0xfff)), odd));
    // A subnormal: the addition rounds at its last place, which is that of 0.5.
    const auto half = hn::Set(du, (127 - 1) << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, bits), hn::BitCast(d, half))), half);
    const auto finite =
        hn::IfThenElse(hn::Lt(bits, hn::Set(du, (127 - 14) << 23)), subnormal, normal);
    const auto special = hn::IfThenElse(hn::Gt(bits, hn::Set(du, 0xff << 23)), hn::Set(du, 0x7e00),
                                        hn::Set(du, 0x7c00));
    const auto positive =
        hn::IfThenElse(hn::Ge(bits, hn::Set(du, (127 + 16) << 23)), special, finite);
    return hn::DemoteTo(hn::Rebind<Stored, D>(), hn::BitCast(di, hn::Or(sign, positive)));
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::Rebind<Stored, D>> v) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), v));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Stored, D>> encode(D, hn::Vec<D> v) {
    return hn::BitCast(hn::Rebind<Stored, D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ranklink
HWY_AFTER_NAMESPACE();
