// Per-target header of Highway kernels, as base/vector_math-inl.h: the features of AdafacMLPLOpt,
// formed tile by tile.
#if defined(LOPT_ADAFAC_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_ADAFAC_FEATURES_INL_H_
#undef LOPT_ADAFAC_FEATURES_INL_H_
#else
#define LOPT_ADAFAC_FEATURES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "lopt/base/workspace.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/adafac/adafac_task.h"
#include "lopt/lopt/mlp/mlp_features-inl.h"
#include "lopt/lopt/network/factored-inl.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/network_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

static_assert(kAdafacTile % kGroup == 0 && kAdafacTile <= kStretch);

// Hidden units that the tiles of the network touch.
HWY_INLINE int64_t TouchedUnits(const NetworkWeights& net) { return (net.hidden + 3) / 4 * 4; }

// The features of a tile of parameters, the rows of which are kAdafacRow apart, for StretchOutputs.
struct AdafacColumns {
  int64_t count() const { return inputs; }

  template <int kV>
  HWY_INLINE void Load(int64_t k, V (&feature)[kV]) const {
    for (int v = 0; v < kV; ++v) feature[v] = hn::Load(d, features + k * kAdafacRow + v * kLanes);
  }
  template <int kV>
  HWY_INLINE void LoadLast(int k, V (&feature)[kV]) const {
    Load(inputs - kPaced + k, feature);
  }

  template <int kJ, int kV>
  HWY_INLINE void AddTo(const float* HWY_RESTRICT weights, int64_t stride, int but,
                        V (&tile)[kJ][kV]) const {
    if (biases != nullptr) {
      const float* HWY_RESTRICT bias = biases + (weights - input) * kAdafacRow;
      HWY_UNROLL(8)
      for (int j = 0; j < kJ; ++j) {
        for (int v = 0; v < kV; ++v) {
          tile[j][v] = hn::Add(tile[j][v], hn::Load(d, bias + j * kAdafacRow + v * kLanes));
        }
      }
    }
    HWY_UNROLL(1)
    for (int64_t k = 0; k < inputs - but; ++k) {
      V feature[kV];
      Load(k, feature);
      AddToTile(feature, weights, tile);
      weights += stride;
    }
  }

  const float* features;
  int64_t inputs;
  const float* biases;  // of the hidden units; may be null
  const float* input;   // the weights of the first
};

// Memory for one thread, with the features of so many tiles.
struct AdafacScratch {
  AdafacScratch(const AdafacTask& task, int64_t tiles, Workspace& workspace)
      : network(*task.network, workspace),
        features(workspace.Take<float>(tiles * task.at->count * kAdafacRow).data()),
        factors(workspace.Take<float>(task.at->f * kAdafacRow).data()),
        biases(workspace.Take<float>(TouchedUnits(*task.network) * kAdafacRow).data()) {}

  NetworkScratch network;
  float* features;
  float* factors;
  float* biases;
};

// to[i] = op(row, col) for a run of `count` parameters, in whole vectors.
template <bool kRowMoves, bool kColMoves, class Op>
HWY_INLINE void CombineRun(const float* HWY_RESTRICT row, const float* HWY_RESTRICT col,
                           int64_t count, float* HWY_RESTRICT to, const Op& op) {
  const V fixed = hn::Set(d, kRowMoves ? *col : *row);
  for (int64_t i = 0; i < count; i += kLanes) {
    const V of_row = kRowMoves ? hn::LoadU(d, row + i) : fixed;
    const V of_col = kColMoves ? hn::LoadU(d, col + i) : fixed;
    hn::StoreU(op(of_row, of_col), d, to + i);
  }
}

// What rows and columns give to a tile of `count` parameters: `factors` factors, and the biases of
// the first layer for `units` hidden units.
template <bool kRowMoves, bool kColMoves>
HWY_INLINE void SpreadRunsThatMove(const AdafacUpdate& u, int64_t count, int64_t factors,
                                   int64_t units, FactoredRuns& runs,
                                   const AdafacScratch& scratch) {
  const auto multiply = [](V a, V b) HWY_ATTR { return hn::Mul(a, b); };
  const auto add = [](V a, V b) HWY_ATTR { return hn::Add(a, b); };
  for (int64_t at = 0; at < count;) {
    const int64_t n = std::min(runs.size(), count - at);
    const auto spread = [&](const float* row, const float* col, int64_t rows, float* to,
                            const auto& op) HWY_ATTR {
      row += runs.row();
      col += runs.col();
      to += at;
      HWY_UNROLL(1)
      for (; rows > 0; --rows, row += u.row.stride, col += u.col.stride, to += kAdafacRow) {
        CombineRun<kRowMoves, kColMoves>(row, col, n, to, op);
      }
    };
    spread(u.row.factors, u.col.factors, factors, scratch.factors, multiply);
    spread(u.row.biases, u.col.biases, units, scratch.biases, add);
    runs.Advance(n);
    at += n;
  }
}

HWY_INLINE void SpreadRuns(const AdafacUpdate& u, int64_t count, int64_t factors, int64_t units,
                           FactoredRuns& runs, const AdafacScratch& scratch) {
  if (!runs.row_moves()) {
    SpreadRunsThatMove<false, true>(u, count, factors, units, runs, scratch);
  } else if (!runs.col_moves()) {
    SpreadRunsThatMove<true, false>(u, count, factors, units, runs, scratch);
  } else {
    SpreadRunsThatMove<true, true>(u, count, factors, units, runs, scratch);
  }
}

// The features of the parameters [first, first + count), count <= kLanes, at `at` of a tile, from
// the state that is updated before if kUpdate. Lanes behind `count` are 0.
template <bool kUpdate, bool kFactored, bool kWhole>
HWY_INLINE void FormFeatures(const AdafacTask& task, const AdafacUpdate& u, int64_t first,
                             int64_t count, const float* HWY_RESTRICT factors,
                             float* HWY_RESTRICT features) {
  const AdafacPlaces& at = *task.at;
  const int64_t size = u.tensor->size;
  const auto put = [&](int64_t feature, V x) HWY_ATTR {
    if (!kWhole) x = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), x);
    hn::Store(x, d, features + feature * kAdafacRow);
  };
  const V g = LoadSome<kWhole>(u.g + first, count);
  put(0, g);
  if (at.celo) put(1, Within(g, AdafacPlaces::kSmallGradient));
  put(at.at_p, LoadSome<kWhole>(u.p + first, count));
  const V square = Bounded(hn::Mul(g, g));
  for (int64_t k = 0; k < at.r; ++k) {
    float* place = u.rms + k * size + first;
    V rms = LoadSome<kWhole>(place, count);
    if (kUpdate) {
      rms = Decayed(task.decays->rms[k], rms, square);
      StoreSome<kWhole>(rms, place, count);
    }
    put(at.at_r + k, rms);
    put(at.at_q + k, InverseRoot(hn::Add(rms, hn::Set(d, AdafacMLPLOpt::kRmsEpsilon))));
  }
  if (at.celo) put(at.at_gq, hn::Mul(g, hn::Load(d, features + at.at_q * kAdafacRow)));
  const int64_t after = kFactored ? at.at_row : at.at_fac_m;
  for (int64_t k = 0; k < at.m; ++k) {
    float* place = u.m + k * size + first;
    V m = LoadSome<kWhole>(place, count);
    if (kUpdate) {
      m = Decayed(task.decays->momentum[k], m, g);
      StoreSome<kWhole>(m, place, count);
    }
    put(at.at_m + k, m);
    const V q = hn::Load(d, features + (at.at_q + (at.r == 1 ? 0 : k)) * kAdafacRow);
    put(at.at_mq + k, hn::Mul(m, q));
    V of_g;
    V of_m;
    if (kFactored) {
      of_g = of_m = hn::Load(d, factors + k * kAdafacRow);
    } else {
      float* v_place = u.v + k * size + first;
      V v = LoadSome<kWhole>(v_place, count);
      if (kUpdate) {
        v = Decayed(task.decays->adafactor[k], v,
                    hn::Add(square, hn::Set(d, kFactoredSquareFloor)));
        StoreSome<kWhole>(v, v_place, count);
      }
      const V rsqrt = InverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kMomentEpsilon)));
      put(at.at_row + k, v);
      put(at.at_col + k, v);
      put(at.at_row_rsqrt + k, rsqrt);
      put(at.at_col_rsqrt + k, rsqrt);
      of_g = FlooredInverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kVectorEpsilon)));
      of_m = InverseRoot(hn::Add(v, hn::Set(d, task.momentum_epsilon)));
    }
    put(at.at_fac_g + k, hn::Mul(g, of_g));
    put(after + k, hn::Mul(m, of_m));
  }
}

// Calls visit(first, count, features) for the tiles of [first, end), each with its features.
template <bool kUpdate, bool kFactored, class Visit>
HWY_INLINE void ForAdafacTiles(const AdafacTask& task, const AdafacUpdate& u,
                               const AdafacScratch& scratch, int64_t first, int64_t end,
                               const Visit& visit) {
  const bool form = kUpdate || !u.kept();
  const int64_t units = kUpdate ? 0 : TouchedUnits(*task.network);
  std::optional<FactoredRuns> runs;
  if (kFactored) runs.emplace(*u.tensor->factored, first);
  float* features = scratch.features;
  for (; first < end; first += kAdafacTile) {
    const int64_t count = std::min(kAdafacTile, end - first);
    if (kFactored) SpreadRuns(u, count, form ? task.at->f : 0, units, *runs, scratch);
    if (form) {
      ForVectors(count, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
        FormFeatures<kUpdate, kFactored, kWhole>(task, u, first + i, n, scratch.factors + i,
                                                 features + i);
      });
    }
    visit(first, count, features);
    if (u.kept()) features += u.dense * kAdafacRow;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_ADAFAC_FEATURES_INL_H_
