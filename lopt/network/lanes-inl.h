// Per-target header of Highway kernels, as base/vector_math-inl.h: vectors of at most 16
// parameters, sums over their lanes, and the ends of arrays.
#if defined(LOPT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_LANES_INL_H_
#undef LOPT_LANES_INL_H_
#else
#define LOPT_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "lopt/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Parameters whose features and state lie side by side.
constexpr int kBlock = 16;

using D = hn::CappedTag<float, kBlock>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
// Long sums are those of sums of so many vectors, so that rounding errors grow less.
constexpr int64_t kSummedFirst = 64;

// max(x, 0) that passes NaN on.
HWY_INLINE V Relu(V x) { return AtLeast(hn::Zero(d), x); }

// x within [-limit, limit]. NaN stays.
HWY_INLINE V Within(V x, float limit) {
  const V high = hn::Set(d, limit);
  const V low = hn::Set(d, -limit);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
}

// decay average + (1 - decay) x.
HWY_INLINE V Decayed(float decay, V average, V x) {
  return hn::MulAdd(hn::Set(d, decay), average, hn::Mul(hn::Set(d, 1.0f - decay), x));
}

HWY_INLINE float SumOfVector(V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

// [sums of neighbours in a, sums of neighbours in b].
HWY_INLINE V AddNeighbours(V a, V b) {
#if HWY_TARGET == HWY_SCALAR  // one lane has no neighbour
  return hn::Add(a, b);
#else
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

// One vector of the sums over lanes of kCount <= kLanes vectors, of which the first kReal are at
// `v` and the others of no interest. The sums are in parts: each is that of kLanes / kCount
// neighbouring lanes. kCount is a power of two.
template <int kCount, int kReal>
HWY_INLINE V PartialLaneSums(const V* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else if constexpr (kReal <= kCount / 2) {
    const V sums = PartialLaneSums<kCount / 2, kReal>(v);
    return AddNeighbours(sums, sums);
  } else {
    return AddNeighbours(PartialLaneSums<kCount / 2, kCount / 2>(v),
                         PartialLaneSums<kCount / 2, kReal - kCount / 2>(v + kCount / 2));
  }
}

// out[i] = sum of the lanes of v[i], i < kReal. Writes kReal, rounded up to vectors, floats.
template <int kReal>
HWY_INLINE void StoreLaneSums(const V* v, float* out) {
  if constexpr (kReal > kLanes) {
    StoreLaneSums<kLanes>(v, out);
    StoreLaneSums<kReal - kLanes>(v + kLanes, out + kLanes);
  } else {
    hn::StoreU(PartialLaneSums<kLanes, kReal>(v), d, out);
  }
}

// The first `count` <= kLanes of the numbers at `from`, then zeros, and the reverse.
HWY_INLINE V LoadFirst(const float* from, int64_t count) {
  const auto wanted = hn::FirstN(d, static_cast<size_t>(count));
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float padded[kLanes] = {};
  for (int64_t i = 0; i < std::min<int64_t>(count, kLanes); ++i) padded[i] = from[i];
  return hn::IfThenElseZero(wanted, hn::Load(d, padded));
#else
  return hn::MaskedLoad(wanted, d, from);
#endif
}

HWY_INLINE void StoreFirst(V x, float* to, int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float padded[kLanes];
  hn::Store(x, d, padded);
  for (int64_t i = 0; i < std::min<int64_t>(count, kLanes); ++i) to[i] = padded[i];
#else
  const auto wanted = hn::FirstN(d, static_cast<size_t>(count));
  hn::BlendedStore(x, wanted, d, to);
#endif
}

// kLanes numbers, or the first `count` of them and zeros, and the reverse.
template <bool kWhole>
HWY_INLINE V LoadSome(const float* from, int64_t count) {
  if constexpr (kWhole) {
    return hn::LoadU(d, from);
  } else {
    return LoadFirst(from, count);
  }
}

template <bool kWhole>
HWY_INLINE void StoreSome(V x, float* to, int64_t count) {
  if constexpr (kWhole) {
    hn::StoreU(x, d, to);
  } else {
    StoreFirst(x, to, count);
  }
}

// Calls body.template operator()<whole>(i, count) for vectors that cover [0, size).
template <class Body>
HWY_INLINE void ForVectors(int64_t size, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body.template operator()<true>(i, kLanes);
  if (i < size) body.template operator()<false>(i, size - i);
}

// The sum of the squares of `count` numbers.
HWY_INLINE float SumOfSquares(const float* HWY_RESTRICT x, int64_t count) {
  constexpr int64_t kChunk = kSummedFirst * kLanes;
  V sum = hn::Zero(d);
  for (int64_t first = 0; first < count; first += kChunk) {
    V part = hn::Zero(d);
    ForVectors(std::min(kChunk, count - first), [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const V value = LoadSome<kWhole>(x + first + i, n);
      part = hn::MulAdd(value, value, part);
    });
    sum = hn::Add(sum, part);
  }
  return SumOfVector(sum);
}

// to[i] = from[i] within [-limit, limit]. NaN stays.
HWY_INLINE void ClipTo(const float* from, int64_t size, float limit, float* to) {
  ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t count) HWY_ATTR {
    StoreSome<kWhole>(Within(LoadSome<kWhole>(from + i, count), limit), to + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_LANES_INL_H_
