// Per-target header of Highway kernels: include after hwy/highway.h, inside a file that
// foreach_target.h compiles once for each instruction set.
#if defined(LOPT_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_EXP_INL_H_
#undef LOPT_EXP_INL_H_
#else
#define LOPT_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// e^x in float32 for any x, to 2 units in the last place. Overflow gives infinity, underflow
// denormals and then 0, NaN stays NaN.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Beyond these the result is infinite or 0. A comparison with NaN is false and keeps it.
  const V high = hn::Set(d, 89.0f);
  const V low = hn::Set(d, -104.0f);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  // x = n ln 2 + r with |r| <= ln 2 / 2. The upper part of ln 2 has few bits, so n times it is
  // exact.
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // e^r = 1 + r + r^2 q(r); the coefficients of q are those of the series.
  V q = hn::Set(d, 1.0f / 5040);
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 720));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 120));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 24));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 6));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
  const V e = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  // 2^n in two factors, since n may leave the range of one exponent.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(e, first), second);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_EXP_INL_H_
