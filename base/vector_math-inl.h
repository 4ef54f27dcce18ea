// Per-target header of Highway kernels: include after hwy/highway.h, inside a file that
// foreach_target.h compiles once for each instruction set.
#if defined(LOPT_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_VECTOR_MATH_INL_H_
#undef LOPT_VECTOR_MATH_INL_H_
#else
#define LOPT_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Each of these passes NaN on. Polynomials: S. Moshier, Cephes Math Library 2.2.

// max(low, x). Where one is NaN, x86's instruction returns the second operand, Arm's the other.
template <class V>
HWY_INLINE V AtLeast(V low, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(low, x);
#else
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

// Each r becomes e^r, for |r| <= ln 2 / 2. The work on one hides the latency of the others.
template <class D, class V, int kN>
HWY_INLINE void ExpOfFractions(D d, V (&r)[kN]) {
  namespace hn = hwy::HWY_NAMESPACE;
  V q[kN];
  const auto all = [](const auto& of_one) HWY_ATTR {
    HWY_UNROLL(4)
    for (int i = 0; i < kN; ++i) of_one(i);
  };
  const auto next = [&](float coefficient) HWY_ATTR {
    const V c = hn::Set(d, coefficient);
    all([&](int i) HWY_ATTR { q[i] = hn::MulAdd(q[i], r[i], c); });
  };
  all([&](int i) HWY_ATTR { q[i] = hn::Set(d, 1.9875691500e-4f); });
  next(1.3981999507e-3f);
  next(8.3334519073e-3f);
  next(4.1665795894e-2f);
  next(1.6666665459e-1f);
  next(5.0000001201e-1f);
  all([&](int i) HWY_ATTR { q[i] = hn::MulAdd(hn::Mul(r[i], r[i]), q[i], r[i]); });
  all([&](int i) HWY_ATTR { r[i] = hn::Add(q[i], hn::Set(d, 1.0f)); });
}

// e^r for |r| <= ln 2 / 2.
template <class D, class V>
HWY_INLINE V ExpOfFraction(D d, V r) {
  V one[1] = {r};
  ExpOfFractions(d, one);
  return one[0];
}

// x - n ln 2. The upper part of ln 2 has few bits, so n times it is exact.
template <class D, class V>
HWY_INLINE V MinusMultipleOfLn2(D d, V x, V n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  return hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
}

// e^x for x <= 88, to 2 units in the last place; below -80 it stays e^-80 = 1.8e-35.
template <class D, class V>
HWY_INLINE V ExpOfAtMost88(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  x = AtLeast(hn::Set(d, -80.0f), x);
  // Adding 1.5 2^23 rounds to an integer, which the lowest bits of the sum then hold.
  const V rounder = hn::Set(d, 12582912.0f);
  const V sum = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), rounder);
  const V n = hn::Sub(sum, rounder);
  const V e = ExpOfFraction(d, MinusMultipleOfLn2(d, x, n));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, sum), hn::Set(di, 127)));
  return hn::Mul(e, hn::BitCast(d, exponent));
}

// e^x for any x, to 2 units in the last place (1 where the result is normal). Overflow gives
// infinity, underflow denormals and then 0.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Beyond these the result is infinite or 0. A comparison with NaN is false and keeps it.
  const V high = hn::Set(d, 89.0f);
  const V low = hn::Set(d, -104.0f);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const V e = ExpOfFraction(d, MinusMultipleOfLn2(d, x, n));
  // 2^n in two factors, since n may leave the range of one exponent.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(e, first), second);
}

// The natural logarithm of a normal, finite x > 0.
template <class D, class V>
HWY_INLINE V LogOfNormal(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  // x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const auto bits = hn::BitCast(di, x);
  const auto above = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const V n = hn::ConvertTo(d, hn::ShiftRight<23>(above));
  const auto mantissa = hn::And(above, hn::Set(di, 0x007fffff));
  const V f = hn::Sub(hn::BitCast(d, hn::Add(mantissa, hn::Set(di, 0x3f3504f3))), one);
  V q = hn::Set(d, 7.0376836292e-2f);
  q = hn::MulAdd(q, f, hn::Set(d, -1.1514610310e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, 1.1676998740e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, -1.2420140846e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, 1.4249322787e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, -1.6668057665e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, 2.0000714765e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, -2.4999993993e-1f));
  q = hn::MulAdd(q, f, hn::Set(d, 3.3333331174e-1f));
  const V square = hn::Mul(f, f);
  V y = hn::Mul(hn::Mul(q, f), square);
  y = hn::MulAdd(n, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), square, y);
  y = hn::MulAdd(n, hn::Set(d, 0.693359375f), hn::Add(f, y));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// tanh(x), to a few units in the last place.
template <class D, class V>
HWY_INLINE V Tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V two = hn::Set(d, 2.0f);
  const V size = hn::Abs(x);
  const V limit = hn::Set(d, 10.0f);  // tanh is 1 from here on
  const V cut = hn::IfThenElse(hn::Gt(size, limit), limit, size);
  const V e = ExpOfAtMost88(d, hn::Add(cut, cut));
  const V large = hn::CopySign(hn::Sub(one, hn::Div(two, hn::Add(e, one))), x);
  const V square = hn::Mul(x, x);
  V q = hn::Set(d, -5.70498872745e-3f);
  q = hn::MulAdd(q, square, hn::Set(d, 2.06390887954e-2f));
  q = hn::MulAdd(q, square, hn::Set(d, -5.37397155531e-2f));
  q = hn::MulAdd(q, square, hn::Set(d, 1.33314422036e-1f));
  q = hn::MulAdd(q, square, hn::Set(d, -3.33332819422e-1f));
  const V small = hn::MulAdd(hn::Mul(q, square), x, x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, large);
}

// 1 / (1 + e^-x), to a few units in the last place.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class V>
struct SineAndCosine {
  V sine;
  V cosine;
};

// sin(x) and cos(x), to 1e-7 for |x| <= 8192. Beyond that they stay in [-1, 1], but lose accuracy.
template <class D, class V>
HWY_INLINE SineAndCosine<V> SinCos(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // x = n pi / 2 + r. The upper parts of pi / 2 have few bits, so n times them is exact.
  const V rounder = hn::Set(d, 12582912.0f);
  const V sum = hn::MulAdd(x, hn::Set(d, 0.636619772367581343f), rounder);
  const V n = hn::Sub(sum, rounder);
  V r = hn::NegMulAdd(n, hn::Set(d, 1.5703125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 4.837512969970703125e-4f), r);
  r = hn::NegMulAdd(n, hn::Set(d, 7.54978995489188216e-8f), r);
  const V limit = hn::Set(d, 0.8f);
  r = hn::IfThenElse(hn::Gt(hn::Abs(r), limit), hn::CopySign(limit, r), r);
  const V square = hn::Mul(r, r);
  V q = hn::Set(d, -1.9515295891e-4f);
  q = hn::MulAdd(q, square, hn::Set(d, 8.3321608736e-3f));
  q = hn::MulAdd(q, square, hn::Set(d, -1.6666654611e-1f));
  const V sine = hn::MulAdd(hn::Mul(q, square), r, r);
  q = hn::Set(d, 2.443315711809948e-5f);
  q = hn::MulAdd(q, square, hn::Set(d, -1.388731625493765e-3f));
  q = hn::MulAdd(q, square, hn::Set(d, 4.166664568298827e-2f));
  q = hn::MulAdd(q, square, hn::Set(d, -0.5f));
  const V cosine = hn::MulAdd(q, square, hn::Set(d, 1.0f));
  // The lowest bits of the sum hold n.
  const auto quadrant = hn::BitCast(di, sum);
  const auto one = hn::Set(di, 1);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, one), one));
  const auto sign = [&](auto bits) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<30>(hn::And(bits, hn::Set(di, 2))));
  };
  return {hn::Xor(hn::IfThenElse(odd, cosine, sine), sign(quadrant)),
          hn::Xor(hn::IfThenElse(odd, sine, cosine), sign(hn::Add(quadrant, one)))};
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_VECTOR_MATH_INL_H_
