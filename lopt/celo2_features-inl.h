// Per-target header of Highway kernels, as base/vector_math-inl.h: the moments and features of
// Celo2, and the directions that its network makes of them.
#if defined(LOPT_CELO2_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_CELO2_FEATURES_INL_H_
#undef LOPT_CELO2_FEATURES_INL_H_
#else
#define LOPT_CELO2_FEATURES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "lopt/celo2.h"
#include "lopt/celo2_matrix.h"
#include "lopt/network_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int kDecays = Celo2Base::kMomenta;
constexpr int kUnits = Celo2Base::kHidden;

HWY_INLINE V Clip(V x, float limit) {  // NaN stays
  const V high = hn::Set(d, limit);
  const V low = hn::Set(d, -limit);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
}

HWY_INLINE V InverseRoot(V x) { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); }

HWY_INLINE V Decay(float decay, V average, V x) {
  return hn::MulAdd(hn::Set(d, decay), average, hn::Mul(hn::Set(d, 1.0f - decay), x));
}

// kLanes numbers, or the first `count` of them and zeros.
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

// What the features of one vector of parameters are made of.
struct Elements {
  V g;
  V p;
  V m[kDecays];
  V r;
  V q;
  V factor[kDecays];
};

// Calls use(k, feature) for the features of the network that differ within rows and columns: the
// first 15, and m F.
template <bool kFactored, class Use>
HWY_INLINE void ForFeatures(const Elements& e, const Use& use) {
  use(0, e.g);
  use(1, Clip(e.g, Celo2Base::kSmallGradientClip));
  use(2, e.p);
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) use(3 + k, e.m[k]);
  use(6, e.r);
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) use(7 + k, hn::Mul(e.m[k], e.q));
  use(10, e.q);
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) use(11 + k, hn::Mul(e.g, e.factor[k]));
  use(14, hn::Mul(e.g, e.q));
  if constexpr (kFactored) {
    HWY_UNROLL(3)
    for (int k = 0; k < kDecays; ++k) use(15 + k, hn::Mul(e.m[k], e.factor[k]));
  }
}

// A vector of parameters of a matrix: the one numbered `vector` of a row.
struct VectorPlace {
  int64_t row = 0;
  int64_t vector = 0;

  HWY_INLINE void Advance(int64_t vectors) {
    if (++vector == vectors) {
      vector = 0;
      ++row;
    }
  }
};

template <bool kFactored, bool kWhole>
HWY_INLINE void LoadFactors(const Celo2Matrix& x, VectorPlace place, int64_t element, int64_t count,
                            V (&factor)[kDecays]) {
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) {
    if constexpr (kFactored) {
      const float* across = x.across_factors[k] + place.row * x.across_stride;
      factor[k] = hn::Mul(hn::Set(d, x.down_factors[k][place.row]),
                          hn::Load(d, across + place.vector * kLanes));
    } else {
      const V floor = hn::Set(d, 1e-9f);
      const V v = hn::Add(LoadSome<kWhole>(x.v[k] + element, count), floor);
      factor[k] = InverseRoot(AtLeast(floor, v));
    }
  }
}

// q of lanes without a parameter is 0, as their other features are.
template <bool kWhole>
HWY_INLINE V RootOfMoment(V r, int64_t count) {
  const V q = InverseRoot(hn::Add(r, hn::Set(d, Celo2Base::kRsqrtEpsilon)));
  if constexpr (kWhole) return q;
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), q);
}

// Updates the moments of a vector and adds the squares of its features to `sums`.
template <bool kFactored, bool kWhole>
HWY_INLINE void UpdateVector(const Celo2Matrix& x, VectorPlace place, int64_t element,
                             int64_t count, V* HWY_RESTRICT sums) {
  Elements e;
  e.g = LoadSome<kWhole>(x.g + element, count);
  e.p = LoadSome<kWhole>(x.p + element, count);
  const V square = hn::Mul(e.g, e.g);
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) {
    float* m = x.m[k] + element;
    e.m[k] = Decay(Celo2Base::kDecays[k], LoadSome<kWhole>(m, count), e.g);
    StoreSome<kWhole>(e.m[k], m, count);
    if constexpr (!kFactored) {
      float* v = x.v[k] + element;
      const V floored = hn::Add(square, hn::Set(d, 1e-30f));
      StoreSome<kWhole>(Decay(Celo2Base::kDecays[k], LoadSome<kWhole>(v, count), floored), v,
                        count);
    }
  }
  e.r = Decay(Celo2Base::kRmsDecay, LoadSome<kWhole>(x.r + element, count), square);
  StoreSome<kWhole>(e.r, x.r + element, count);
  e.q = RootOfMoment<kWhole>(e.r, count);
  LoadFactors<kFactored, kWhole>(x, place, element, count, e.factor);
  ForFeatures<kFactored>(
      e, [&](int k, V feature) HWY_ATTR { sums[k] = hn::MulAdd(feature, feature, sums[k]); });
}

// First pass: updates the moments of a matrix. `sums` become the sums of the features' squares.
template <bool kFactored>
HWY_NOINLINE void UpdateMoments(const Celo2Matrix& x, float* HWY_RESTRICT sums) {
  constexpr int kFeatures = kFactored ? kCelo2Elementwise : Celo2Base::kFewFeatures;
  constexpr int64_t kChunk = 64;  // vectors that are summed first: see SumOfSquares
  V total[kCelo2Elementwise];
  for (int k = 0; k < kFeatures; ++k) total[k] = hn::Zero(d);
  const int64_t vectors = x.columns / kLanes;  // whole ones of a row
  const int64_t tail = x.columns % kLanes;
  VectorPlace place;
  int64_t element = 0;
  while (place.row < x.rows) {
    V sums_of_chunk[kCelo2Elementwise];
    HWY_UNROLL(18)
    for (int k = 0; k < kFeatures; ++k) sums_of_chunk[k] = hn::Zero(d);
    for (int64_t n = 0; n < kChunk && place.row < x.rows; ++n) {
      if (place.vector < vectors) {
        UpdateVector<kFactored, true>(x, place, element, kLanes, sums_of_chunk);
        element += kLanes;
      } else {
        UpdateVector<kFactored, false>(x, place, element, tail, sums_of_chunk);
        element += tail;
      }
      place.Advance(vectors + (tail > 0 ? 1 : 0));
    }
    for (int k = 0; k < kFeatures; ++k) total[k] = hn::Add(total[k], sums_of_chunk[k]);
  }
  for (int k = 0; k < kFeatures; ++k) sums[k] = SumOfVector(total[k]);
}

// The features of the parameters at `place`, one vector, not normalised, `stride` apart.
template <bool kFactored, bool kWhole>
HWY_INLINE void WriteFeatures(const Celo2Matrix& x, VectorPlace place, int64_t count,
                              int64_t stride, float* HWY_RESTRICT out) {
  const int64_t element = place.row * x.columns + place.vector * kLanes;
  Elements e;
  e.g = LoadSome<kWhole>(x.g + element, count);
  e.p = LoadSome<kWhole>(x.p + element, count);
  for (int k = 0; k < kDecays; ++k) e.m[k] = LoadSome<kWhole>(x.m[k] + element, count);
  e.r = LoadSome<kWhole>(x.r + element, count);
  e.q = RootOfMoment<kWhole>(e.r, count);
  LoadFactors<kFactored, kWhole>(x, place, element, count, e.factor);
  ForFeatures<kFactored>(
      e, [&](int k, V feature) HWY_ATTR { hn::Store(feature, d, out + k * stride); });
}

// The directions of kV vectors of parameters, from `place` on, which is advanced; lanes without a
// parameter are 0.
template <bool kFactored, int kV>
HWY_NOINLINE void DirectionsOfVectors(const Celo2Weights& net, const Celo2Matrix& x,
                                      VectorPlace* place, float* HWY_RESTRICT directions) {
  constexpr int kFeatures = kFactored ? kCelo2Elementwise : Celo2Base::kFewFeatures;
  constexpr int64_t kWidth = kV * kLanes;
  HWY_ALIGN float features[kCelo2Elementwise * kWidth];
  HWY_ALIGN float hidden[kUnits * kWidth];
  const float* across[kV];
  const float* down[kV];
  int64_t counts[kV];
  for (int v = 0; v < kV; ++v) {
    counts[v] = std::min<int64_t>(kLanes, x.columns - place->vector * kLanes);
    if (counts[v] == kLanes) {
      WriteFeatures<kFactored, true>(x, *place, kLanes, kWidth, features + v * kLanes);
    } else {
      WriteFeatures<kFactored, false>(x, *place, counts[v], kWidth, features + v * kLanes);
    }
    if constexpr (kFactored) {
      across[v] = x.across_bias + place->row * x.across_stride + place->vector * kLanes;
      down[v] = x.down_bias + place->row;
    }
    place->Advance(x.vectors);
  }
  ForTiles(kUnits, [&]<int kJ>(int64_t j) HWY_ATTR {
    V tile[kJ][kV];
    if constexpr (kFactored) {
      HWY_UNROLL(8)
      for (int i = 0; i < kJ; ++i) {
        HWY_UNROLL(3)
        for (int v = 0; v < kV; ++v) {
          tile[i][v] = hn::Add(hn::Load(d, across[v] + (j + i) * x.across_size),
                               hn::Set(d, down[v][(j + i) * x.down_size]));
        }
      }
    } else {
      StartTile(net.bias0 + j, tile);
    }
    HWY_UNROLL(1)
    for (int64_t k = 0; k < kFeatures; ++k) {
      V feature[kV];
      for (int v = 0; v < kV; ++v) feature[v] = hn::Load(d, features + k * kWidth + v * kLanes);
      AddToTile(feature, x.weights + k * kUnits + j, tile);
    }
    StoreTile(tile, hidden + j * kWidth);
  });
  V out[kV];
  for (int v = 0; v < kV; ++v) out[v] = hn::Set(d, net.bias2);
  ForTiles(kUnits, [&]<int kJ>(int64_t j) HWY_ATTR {
    V tile[kJ][kV];
    InnerTile(hidden, kUnits, net.weights1 + j, kUnits, net.bias1 + j, tile);
    HWY_UNROLL(8)
    for (int i = 0; i < kJ; ++i) {
      const V weight = hn::Set(d, net.weights2[j + i]);
      HWY_UNROLL(3)
      for (int v = 0; v < kV; ++v) out[v] = hn::MulAdd(Relu(tile[i][v]), weight, out[v]);
    }
  });
  for (int v = 0; v < kV; ++v) {
    const auto real = hn::FirstN(d, static_cast<size_t>(counts[v]));
    hn::StoreU(hn::IfThenElseZero(real, out[v]), d, directions + v * kLanes);
  }
}

// Second pass: the directions of a matrix, whose rows are padded by zeros to whole vectors.
template <bool kFactored>
HWY_INLINE void Directions(const Celo2Weights& net, const Celo2Matrix& x,
                           float* HWY_RESTRICT directions) {
  const int64_t vectors = x.rows * x.vectors;
  VectorPlace place;
  int64_t n = 0;
  for (; n + kVectors <= vectors; n += kVectors) {
    DirectionsOfVectors<kFactored, kVectors>(net, x, &place, directions + n * kLanes);
  }
  if (n + 2 <= vectors) {
    DirectionsOfVectors<kFactored, 2>(net, x, &place, directions + n * kLanes);
    n += 2;
  }
  if (n < vectors) DirectionsOfVectors<kFactored, 1>(net, x, &place, directions + n * kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_CELO2_FEATURES_INL_H_
