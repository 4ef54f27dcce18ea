#include "lopt/base/key_kernel.h"

#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/base/key_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<uint32_t>;
using Ints = hn::ScalableTag<int32_t>;
using Floats = hn::ScalableTag<float>;
using WordVector = hn::Vec<Words>;
using FloatVector = hn::Vec<Floats>;

// Four vectors that are worked on in step, so that the work on one hides the latency of another.
struct FourVectors {
  WordVector a, b, c, d;
};

HWY_INLINE WordVector Same(WordVector, uint32_t x) { return hn::Set(Words(), x); }
HWY_INLINE FourVectors Same(const FourVectors&, uint32_t x) {
  const auto v = hn::Set(Words(), x);
  return {v, v, v, v};
}

HWY_INLINE WordVector Plus(WordVector x, WordVector y) { return hn::Add(x, y); }
HWY_INLINE FourVectors Plus(const FourVectors& x, const FourVectors& y) {
  return {hn::Add(x.a, y.a), hn::Add(x.b, y.b), hn::Add(x.c, y.c), hn::Add(x.d, y.d)};
}

HWY_INLINE WordVector ExclusiveOr(WordVector x, WordVector y) { return hn::Xor(x, y); }
HWY_INLINE FourVectors ExclusiveOr(const FourVectors& x, const FourVectors& y) {
  return {hn::Xor(x.a, y.a), hn::Xor(x.b, y.b), hn::Xor(x.c, y.c), hn::Xor(x.d, y.d)};
}

template <int kBits>
HWY_INLINE WordVector RotateLeft(WordVector x) {
  return hn::RotateRight<32 - kBits>(x);
}
template <int kBits>
HWY_INLINE FourVectors RotateLeft(const FourVectors& x) {
  return {RotateLeft<kBits>(x.a), RotateLeft<kBits>(x.b), RotateLeft<kBits>(x.c),
          RotateLeft<kBits>(x.d)};
}

template <int kRotation, class Vectors>
HWY_INLINE void Round(Vectors& x0, Vectors& x1) {
  x0 = Plus(x0, x1);
  x1 = ExclusiveOr(RotateLeft<kRotation>(x1), x0);
}

template <int kFirst, int kSecond, int kThird, int kFourth, class Vectors>
HWY_INLINE void FourRounds(Vectors& x0, Vectors& x1) {
  Round<kFirst>(x0, x1);
  Round<kSecond>(x0, x1);
  Round<kThird>(x0, x1);
  Round<kFourth>(x0, x1);
}

template <class Vectors>
HWY_INLINE void Inject(uint32_t added0, uint32_t added1, Vectors& x0, Vectors& x1) {
  x0 = Plus(x0, Same(x0, added0));
  x1 = Plus(x1, Same(x1, added1));
}

// The xor of the two words of threefry-2x32 (20 rounds). The upper word of the counter is the same
// for all; `lower` is WordVector or FourVectors.
template <class Vectors>
HWY_INLINE Vectors RandomWords(Key key, uint32_t upper, const Vectors& lower) {
  const uint32_t k0 = key.hi;
  const uint32_t k1 = key.lo;
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  Vectors x0 = Same(lower, upper + k0);
  Vectors x1 = Plus(lower, Same(lower, k1));
  FourRounds<13, 15, 26, 6>(x0, x1);
  Inject(k1, k2 + 1, x0, x1);
  FourRounds<17, 29, 16, 24>(x0, x1);
  Inject(k2, k0 + 2, x0, x1);
  FourRounds<13, 15, 26, 6>(x0, x1);
  Inject(k0, k1 + 3, x0, x1);
  FourRounds<17, 29, 16, 24>(x0, x1);
  Inject(k1, k2 + 4, x0, x1);
  FourRounds<13, 15, 26, 6>(x0, x1);
  Inject(k2, k0 + 5, x0, x1);
  return ExclusiveOr(x0, x1);
}

// out[0, n) = map(words). The tail is computed as a whole vector too, so that an element does not
// depend on its place.
template <class T, class Map>
HWY_INLINE void Fill(Key key, uint64_t first, size_t n, T* out, const Map& map) {
  const Words du;
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const uint32_t upper = static_cast<uint32_t>(first >> 32);
  const auto step = hn::Set(du, static_cast<uint32_t>(lanes));
  auto counter = hn::Iota(du, static_cast<uint32_t>(first));
  HWY_ALIGN uint32_t words[4 * hn::MaxLanes(du)];
  HWY_ALIGN T tail[hn::MaxLanes(d)];
  for (size_t begin = 0; begin < n; begin += 4 * lanes) {
    const size_t count = HWY_MIN(4 * lanes, n - begin);
    if (count > lanes) {
      const auto second = hn::Add(counter, step);
      const auto third = hn::Add(second, step);
      const auto fourth = hn::Add(third, step);
      const auto four = RandomWords(key, upper, FourVectors{counter, second, third, fourth});
      hn::Store(four.a, du, words);
      hn::Store(four.b, du, words + lanes);
      hn::Store(four.c, du, words + 2 * lanes);
      hn::Store(four.d, du, words + 3 * lanes);
      counter = hn::Add(fourth, step);
    } else {
      hn::Store(RandomWords(key, upper, counter), du, words);
    }
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(map(hn::Load(du, words + i)), d, out + begin + i);
    }
    if (i < count) {
      hn::Store(map(hn::Load(du, words + i)), d, tail);
      std::memcpy(out + begin + i, tail, (count - i) * sizeof(T));
    }
  }
}

HWY_INLINE FloatVector UnitUniform(WordVector words) {
  const Words du;
  const Floats df;
  const auto one = hn::Set(df, 1.0f);
  const auto above_one = hn::BitCast(df, hn::Or(hn::ShiftRight<9>(words), hn::BitCast(du, one)));
  return hn::Sub(above_one, one);
}

template <size_t kTerms>
HWY_INLINE FloatVector Polynomial(const float (&coefficients)[kTerms], FloatVector x) {
  const Floats d;
  FloatVector sum = hn::Set(d, coefficients[0]);
  for (size_t i = 1; i < kTerms; ++i) {
    sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[i]));
  }
  return sum;
}

// sqrt(2) erfinv(u), |u| < 1: Giles 2011, "Approximating the erfinv function", single precision,
// with the square root of 2 in the coefficients. w = -log(1 - u^2); u^2 is rounded before it is
// subtracted, as XLA's erf_inv does.
HWY_INLINE FloatVector SqrtTwoErfInv(FloatVector u) {
  // -log(1 + f) - 2.5 on [sqrt(1/2) - 1, sqrt(2) - 1], minimax to 3e-8.
  static constexpr float kShiftedLog[] = {0.100799218f,  -0.164812341f, 0.173710257f,
                                          -0.198641464f, 0.24953711f,   -0.333365828f,
                                          0.500009179f,  -0.999999762f, -2.5f};
  static constexpr float kCentral[] = {3.97426021e-08f,  4.85462635e-07f, -4.9828227e-06f,
                                       -6.21052823e-06f, 0.00030912002f,  -0.00177303492f,
                                       -0.00590813393f,  0.348802656f,    2.12331367f};
  static constexpr float kTail[] = {-0.000283145724f, 0.000142765653f, 0.00190825947f,
                                    -0.00519501232f,  0.00811688974f,  -0.0107797878f,
                                    0.0133485785f,    1.41658103f,     4.00643444f};
  const Floats df;
  const Ints di;
  const auto y = hn::Sub(hn::Set(df, 1.0f), hn::Mul(u, u));
  const auto bits = hn::BitCast(di, y);
  constexpr int32_t kSqrtHalfBits = 0x3F3504F3;
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, kSqrtHalfBits)));
  const auto mantissa = hn::BitCast(df, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const auto f = hn::Sub(mantissa, hn::Set(df, 1.0f));
  const auto shifted = hn::MulAdd(hn::ConvertTo(df, exponent), hn::Set(df, -0.693147181f),
                                  Polynomial(kShiftedLog, f));  // w - 2.5
  FloatVector ratio = Polynomial(kCentral, shifted);
  const auto central = hn::Lt(shifted, hn::Set(df, 2.5f));
  if (HWY_UNLIKELY(!hn::AllTrue(df, central))) {
    const auto root = hn::Sqrt(hn::Max(hn::Add(shifted, hn::Set(df, 2.5f)), hn::Zero(df)));
    ratio = hn::IfThenElse(central, ratio, Polynomial(kTail, hn::Sub(root, hn::Set(df, 3.0f))));
  }
  return hn::Mul(ratio, u);
}

struct ToWord {
  HWY_INLINE WordVector operator()(WordVector words) const { return words; }
};

struct ToUniform {
  HWY_INLINE FloatVector operator()(WordVector words) const { return UnitUniform(words); }
};

struct ToNormal {
  HWY_INLINE FloatVector operator()(WordVector words) const {
    const Floats d;
    // On (-1, 1): from the float after -1, in steps of 2^-22. Doubling is exact, so it does not
    // matter whether the product is rounded.
    constexpr float kAfterMinusOne = -0x1.fffffep-1f;
    return SqrtTwoErfInv(
        hn::MulAdd(UnitUniform(words), hn::Set(d, 2.0f), hn::Set(d, kAfterMinusOne)));
  }
};

struct ToTruncatedNormal {
  QuantileRange range;

  HWY_INLINE FloatVector operator()(WordVector words) const {
    const Floats d;
    const auto low = hn::Set(d, range.low);
    const auto span = hn::Set(d, range.high - range.low);
    const auto u = hn::Max(low, hn::Add(hn::Mul(UnitUniform(words), span), low));
    const auto infinity = hn::CopySign(hn::Set(d, std::numeric_limits<float>::infinity()), u);
    const auto z = hn::IfThenElse(hn::Eq(hn::Abs(u), hn::Set(d, 1.0f)), infinity, SqrtTwoErfInv(u));
    return hn::Min(hn::Max(z, hn::Set(d, range.min)), hn::Set(d, range.max));
  }
};

void FillBits(Key key, uint64_t first, size_t n, uint32_t* out) {
  Fill(key, first, n, out, ToWord());
}

void FillUniform(Key key, uint64_t first, size_t n, float* out) {
  Fill(key, first, n, out, ToUniform());
}

void FillNormal(Key key, uint64_t first, size_t n, float* out) {
  Fill(key, first, n, out, ToNormal());
}

void FillTruncatedNormal(Key key, const QuantileRange& range, uint64_t first, size_t n,
                         float* out) {
  Fill(key, first, n, out, ToTruncatedNormal{range});
}

// x mod span, where `reciprocal` is (2^32 - 1) / span: the quotient estimate is at most one short.
HWY_INLINE uint32_t Remainder(uint32_t x, uint32_t span, uint32_t reciprocal) {
  const auto quotient = static_cast<uint32_t>((static_cast<uint64_t>(x) * reciprocal) >> 32);
  const uint32_t remainder = x - quotient * span;
  return remainder >= span ? remainder - span : remainder;
}

void FillRandint(Key upper, Key lower, const RandintRange& range, uint64_t first, size_t n,
                 int32_t* out) {
  constexpr size_t kBlock = 256;
  HWY_ALIGN uint32_t high_words[kBlock];
  HWY_ALIGN uint32_t low_words[kBlock];
  const uint32_t span = range.span;
  const uint32_t multiplier = range.multiplier;
  const uint32_t low = static_cast<uint32_t>(range.low);
  const uint32_t reciprocal = std::numeric_limits<uint32_t>::max() / span;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = HWY_MIN(kBlock, n - begin);
    Fill(upper, first + begin, count, high_words, ToWord());
    Fill(lower, first + begin, count, low_words, ToWord());
    for (size_t i = 0; i < count; ++i) {
      const uint32_t offset = Remainder(high_words[i], span, reciprocal) * multiplier +
                              Remainder(low_words[i], span, reciprocal);
      out[begin + i] = static_cast<int32_t>(low + Remainder(offset, span, reciprocal));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {

HWY_EXPORT(FillBits);
HWY_EXPORT(FillUniform);
HWY_EXPORT(FillNormal);
HWY_EXPORT(FillTruncatedNormal);
HWY_EXPORT(FillRandint);

void BitsKernel(Key key, uint64_t first, size_t n, uint32_t* out) {
  LOPT_DISPATCH(FillBits)(key, first, n, out);
}

void UniformKernel(Key key, uint64_t first, size_t n, float* out) {
  LOPT_DISPATCH(FillUniform)(key, first, n, out);
}

void NormalKernel(Key key, uint64_t first, size_t n, float* out) {
  LOPT_DISPATCH(FillNormal)(key, first, n, out);
}

void TruncatedNormalKernel(Key key, const QuantileRange& range, uint64_t first, size_t n,
                           float* out) {
  LOPT_DISPATCH(FillTruncatedNormal)(key, range, first, n, out);
}

void RandintKernel(Key upper, Key lower, const RandintRange& range, uint64_t first, size_t n,
                   int32_t* out) {
  LOPT_DISPATCH(FillRandint)(upper, lower, range, first, n, out);
}

}  // namespace lopt
#endif  // HWY_ONCE
