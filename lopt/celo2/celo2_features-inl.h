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

#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/celo2/celo2_matrix.h"
#include "lopt/lopt/network/factored-inl.h"
#include "lopt/lopt/network/network_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int kDecays = Celo2Base::kMomenta;
constexpr int kUnits = Celo2Base::kHidden;

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
HWY_INLINE V LoadFactor(const Celo2Matrix& x, VectorPlace place, int k, int64_t element,
                        int64_t count) {
  if constexpr (kFactored) {
    const float* across = x.across_factors[k] + place.row * x.across_stride;
    return hn::Mul(hn::Set(d, x.down_factors[k][place.row]),
                   hn::Load(d, across + place.vector * kLanes));
  } else {
    const V v = LoadSome<kWhole>(x.v[k] + element, count);
    return FlooredInverseRoot(hn::Add(v, hn::Set(d, kFactoredMomentFloor)));
  }
}

// Updates the moments of a vector, writes its q, and adds the squares of its features to `sums`.
template <bool kFactored, bool kWhole>
HWY_INLINE void UpdateVector(const Celo2Matrix& x, VectorPlace place, int64_t element,
                             int64_t count, V (&sums)[kCelo2Elementwise]) {
  const auto add = [&](int k, V feature)
                       HWY_ATTR { sums[k] = hn::MulAdd(feature, feature, sums[k]); };
  const V g = LoadSome<kWhole>(x.g + element, count);
  const V square = hn::Mul(g, g);
  float* at = x.r + element;
  const V r = Decayed(Celo2Base::kRmsDecay, LoadSome<kWhole>(at, count), square);
  StoreSome<kWhole>(r, at, count);
  V q = InverseRoot(hn::Add(r, hn::Set(d, Celo2Base::kRsqrtEpsilon)));
  // Where there is no parameter the other features are 0.
  if constexpr (!kWhole) q = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), q);
  StoreSome<kWhole>(q, x.q + element, count);
  add(0, g);
  add(1, Within(g, Celo2Base::kSmallGradientClip));
  add(2, LoadSome<kWhole>(x.p + element, count));
  add(6, r);
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) {
    at = x.m[k] + element;
    const V m = Decayed(Celo2Base::kDecays[k], LoadSome<kWhole>(at, count), g);
    StoreSome<kWhole>(m, at, count);
    if constexpr (!kFactored) {
      at = x.v[k] + element;
      const V floored = hn::Add(square, hn::Set(d, kFactoredSquareFloor));
      const V v = Decayed(Celo2Base::kDecays[k], LoadSome<kWhole>(at, count), floored);
      StoreSome<kWhole>(v, at, count);
    }
    const V factor = LoadFactor<kFactored, kWhole>(x, place, k, element, count);
    add(3 + k, m);
    add(7 + k, hn::Mul(m, q));
    add(11 + k, hn::Mul(g, factor));
    if constexpr (kFactored) add(15 + k, hn::Mul(m, factor));
  }
  add(10, q);
  add(14, hn::Mul(g, q));
}

// Adds sums to others and makes them 0.
HWY_INLINE void MoveSums(V (&from)[kCelo2Elementwise], V (&to)[kCelo2Elementwise]) {
  for (int k = 0; k < kCelo2Elementwise; ++k) {
    to[k] = hn::Add(to[k], from[k]);
    from[k] = hn::Zero(d);
  }
}

// First pass: updates the moments of a matrix. `sums` become the sums of the features' squares.
template <bool kFactored>
HWY_NOINLINE void UpdateMoments(const Celo2Matrix& x, float* HWY_RESTRICT sums) {
  // Sums of so many rows are formed first, and those of stretches of a longer row.
  const int64_t chunk = (kSummedFirst + x.vectors - 1) / x.vectors;
  constexpr int kFeatures = kFactored ? kCelo2Elementwise : Celo2Base::kFewFeatures;
  V total[kCelo2Elementwise];
  for (int k = 0; k < kFeatures; ++k) total[k] = hn::Zero(d);
  const int64_t vectors = x.columns / kLanes;
  const int64_t tail = x.columns % kLanes;
  int64_t element = 0;
  for (int64_t first = 0; first < x.rows; first += chunk) {
    const int64_t end = std::min(x.rows, first + chunk);
    V part[kCelo2Elementwise];
    V of_row[kCelo2Elementwise];  // where it is longer: its stretches before
    HWY_UNROLL(18)
    for (int k = 0; k < kCelo2Elementwise; ++k) part[k] = of_row[k] = hn::Zero(d);
    for (int64_t row = first; row < end; ++row) {
      for (int64_t stretch = 0; stretch < vectors; stretch += kSummedFirst) {
        if (stretch > 0) MoveSums(part, of_row);
        const int64_t last = std::min(vectors, stretch + kSummedFirst);
        for (int64_t vector = stretch; vector < last; ++vector) {
          UpdateVector<kFactored, true>(x, {row, vector}, element, kLanes, part);
          element += kLanes;
        }
      }
      if (tail > 0) {
        UpdateVector<kFactored, false>(x, {row, vectors}, element, tail, part);
        element += tail;
      }
    }
    MoveSums(part, of_row);
    for (int k = 0; k < kFeatures; ++k) total[k] = hn::Add(total[k], of_row[k]);
  }
  for (int k = 0; k < kFeatures; ++k) sums[k] = SumOfVector(total[k]);
}

// Adds what the elementwise features of kV vectors of parameters contribute to a tile of the first
// layer. Lanes beyond `counts` may be anything.
template <bool kFactored, bool kWhole, int kV, int kJ>
HWY_INLINE void AddElementwise(const Celo2Matrix& x, const VectorPlace (&places)[kV],
                               const int64_t (&counts)[kV], const float* HWY_RESTRICT weights,
                               V (&tile)[kJ][kV]) {
  int64_t element[kV];
  for (int v = 0; v < kV; ++v) element[v] = places[v].row * x.columns + places[v].vector * kLanes;
  V feature[kV];
  const auto load = [&](const float* from, int v)
                        HWY_ATTR { return LoadSome<kWhole>(from + element[v], counts[v]); };
  const auto add = [&](int k, const auto& value) HWY_ATTR {
    for (int v = 0; v < kV; ++v) feature[v] = value(v);
    AddToTile(feature, weights + k * kUnits, tile);
  };
  add(0, [&](int v) HWY_ATTR { return load(x.g, v); });
  add(1, [&](int v) HWY_ATTR { return Within(load(x.g, v), Celo2Base::kSmallGradientClip); });
  add(14, [&](int v) HWY_ATTR { return hn::Mul(load(x.g, v), load(x.q, v)); });
  add(2, [&](int v) HWY_ATTR { return load(x.p, v); });
  add(6, [&](int v) HWY_ATTR { return load(x.r, v); });
  add(10, [&](int v) HWY_ATTR { return load(x.q, v); });
  HWY_UNROLL(3)
  for (int k = 0; k < kDecays; ++k) {
    add(3 + k, [&](int v) HWY_ATTR { return load(x.m[k], v); });
    add(7 + k, [&](int v) HWY_ATTR { return hn::Mul(load(x.m[k], v), load(x.q, v)); });
    V factor[kV];
    for (int v = 0; v < kV; ++v) {
      factor[v] = LoadFactor<kFactored, kWhole>(x, places[v], k, element[v], counts[v]);
    }
    add(11 + k, [&](int v) HWY_ATTR { return hn::Mul(load(x.g, v), factor[v]); });
    if constexpr (kFactored) {
      add(15 + k, [&](int v) HWY_ATTR { return hn::Mul(load(x.m[k], v), factor[v]); });
    }
  }
}

// The directions of kV vectors of parameters; lanes without a parameter are 0.
template <bool kFactored, bool kWhole, int kV>
HWY_NOINLINE void DirectionsOfVectors(const Celo2Weights& net, const Celo2Matrix& x,
                                      const VectorPlace (&places)[kV],
                                      float* HWY_RESTRICT directions) {
  constexpr int64_t kWidth = kV * kLanes;
  HWY_ALIGN float hidden[kUnits * kWidth];
  int64_t counts[kV];
  for (int v = 0; v < kV; ++v) {
    counts[v] = std::min<int64_t>(kLanes, x.columns - places[v].vector * kLanes);
  }
  ForTiles(kUnits, [&]<int kJ>(int64_t j) HWY_ATTR {
    V tile[kJ][kV];
    if constexpr (kFactored) {
      for (int v = 0; v < kV; ++v) {
        const auto [row, vector] = places[v];
        const float* across = x.across_bias + row * x.across_stride + vector * kLanes;
        HWY_UNROLL(8)
        for (int i = 0; i < kJ; ++i) {
          tile[i][v] = hn::Add(hn::Load(d, across + (j + i) * x.across_size),
                               hn::Set(d, x.down_bias[(j + i) * x.down_size + row]));
        }
      }
    } else {
      StartTile(net.bias0 + j, tile);
    }
    AddElementwise<kFactored, kWhole>(x, places, counts, x.weights + j, tile);
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

// The same from `place` on, which is advanced.
template <bool kFactored, int kV>
HWY_INLINE void NextDirections(const Celo2Weights& net, const Celo2Matrix& x, VectorPlace* place,
                               float* HWY_RESTRICT directions) {
  VectorPlace places[kV];
  for (int v = 0; v < kV; ++v) {
    places[v] = *place;
    place->Advance(x.vectors);
  }
  // The end of a row may be read with what is behind it, the end of the tensor may not.
  const VectorPlace last = places[kV - 1];
  if (last.row * x.columns + (last.vector + 1) * kLanes <= x.readable) {
    DirectionsOfVectors<kFactored, true>(net, x, places, directions);
  } else {
    DirectionsOfVectors<kFactored, false>(net, x, places, directions);
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
    NextDirections<kFactored, kVectors>(net, x, &place, directions + n * kLanes);
  }
  if (n + 2 <= vectors) {
    NextDirections<kFactored, 2>(net, x, &place, directions + n * kLanes);
    n += 2;
  }
  if (n < vectors) NextDirections<kFactored, 1>(net, x, &place, directions + n * kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_CELO2_FEATURES_INL_H_
