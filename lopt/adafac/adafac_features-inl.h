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

// Memory for one thread, with the features of a tile.
struct AdafacScratch {
  AdafacScratch(const AdafacTask& task, Workspace& workspace)
      : network(*task.network, workspace),
        features(workspace.Take<float>(task.at->count * kAdafacRow).data()),
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

// Forms kN features of the `count` parameters of a tile, a vector at a time, and stores them to
// their rows. form.template operator()<kWhole>(i, n, out) gives those of the parameters from i on.
// What lies behind `count` in a row is no feature.
struct StoreFeatures {
  template <int kN, class Form>
  HWY_INLINE void operator()(const int64_t (&rows)[kN], int64_t count, const Form& form) const {
    ForVectors(count, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      V x[kN];
      form.template operator()<kWhole>(i, n, x);
      HWY_UNROLL(8)
      for (int j = 0; j < kN; ++j) hn::Store(x[j], d, features + rows[j] * kAdafacRow + i);
    });
  }

  float* features;
};

// Forms features as StoreFeatures does, but keeps only the sums of their squares: each is added to
// the kLanes sums of its row, after it is multiplied by kShrink if kShrunk.
template <bool kShrunk>
struct AddSquares {
  template <int kN, class Form>
  HWY_INLINE void operator()(const int64_t (&rows)[kN], int64_t count, const Form& form) const {
    V sums[kN];
    HWY_UNROLL(8)
    for (int j = 0; j < kN; ++j) sums[j] = hn::Zero(d);
    ForVectors(count, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      V x[kN];
      form.template operator()<kWhole>(i, n, x);
      HWY_UNROLL(8)
      for (int j = 0; j < kN; ++j) {
        if (!kWhole) x[j] = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), x[j]);
        if (kShrunk) x[j] = hn::Mul(hn::Set(d, kShrink), x[j]);
        sums[j] = hn::MulAdd(x[j], x[j], sums[j]);
      }
    });
    HWY_UNROLL(8)
    for (int j = 0; j < kN; ++j) {
      float* total = lanes + rows[j] * kLanes;
      hn::Store(hn::Add(hn::Load(d, total), sums[j]), d, total);
    }
  }

  float* lanes;
};

// Gives the features of the parameters [first, first + count), a tile, to put(rows, count, form),
// from the state that is updated before if kUpdate.
template <bool kUpdate, bool kFactored, class Put>
HWY_INLINE void FormFeatures(const AdafacTask& task, const AdafacUpdate& u,
                             const AdafacScratch& scratch, int64_t first, int64_t count,
                             const Put& put) {
  const AdafacPlaces& at = *task.at;
  const int64_t size = u.tensor->size;
  const float* HWY_RESTRICT gradient = u.g + first;
  const float* HWY_RESTRICT params = u.p + first;
  if (at.celo) {
    put({0, 1, at.at_p}, count, [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[3]) HWY_ATTR {
      x[0] = LoadSome<kWhole>(gradient + i, n);
      x[1] = Within(x[0], AdafacPlaces::kSmallGradient);
      x[2] = LoadSome<kWhole>(params + i, n);
    });
  } else {
    put({0, at.at_p}, count, [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[2]) HWY_ATTR {
      x[0] = LoadSome<kWhole>(gradient + i, n);
      x[1] = LoadSome<kWhole>(params + i, n);
    });
  }
  // The next features are products with the inverse roots.
  float* roots = scratch.features + at.at_q * kAdafacRow;
  for (int64_t k = 0; k < at.r; ++k) {
    float* average = u.rms + k * size + first;
    float* root = roots + k * kAdafacRow;
    put({at.at_r + k, at.at_q + k}, count,
        [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[2]) HWY_ATTR {
          V rms = LoadSome<kWhole>(average + i, n);
          if (kUpdate) {
            const V g = LoadSome<kWhole>(gradient + i, n);
            rms = Decayed(task.decays->rms[k], rms, Bounded(hn::Mul(g, g)));
            StoreSome<kWhole>(rms, average + i, n);
          }
          x[0] = rms;
          x[1] = InverseRoot(hn::Add(rms, hn::Set(d, AdafacMLPLOpt::kRmsEpsilon)));
          hn::Store(x[1], d, root + i);
        });
  }
  if (at.celo) {
    put({at.at_gq}, count, [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[1]) HWY_ATTR {
      x[0] = hn::Mul(LoadSome<kWhole>(gradient + i, n), hn::Load(d, roots + i));
    });
  }
  for (int64_t k = 0; k < at.m; ++k) {
    float* momentum = u.m + k * size + first;
    const float* root = roots + (at.r == 1 ? 0 : k) * kAdafacRow;
    const auto form_momentum = [&]<bool kWhole>(int64_t i, int64_t n, V g, V* x) HWY_ATTR {
      x[0] = LoadSome<kWhole>(momentum + i, n);
      if (kUpdate) {
        x[0] = Decayed(task.decays->momentum[k], x[0], g);
        StoreSome<kWhole>(x[0], momentum + i, n);
      }
      x[1] = hn::Mul(x[0], hn::Load(d, root + i));
    };
    if constexpr (kFactored) {
      const float* factors = scratch.factors + k * kAdafacRow;
      put({at.at_m + k, at.at_mq + k, at.at_fac_g + k, at.at_row + k}, count,
          [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[4]) HWY_ATTR {
            const V g = LoadSome<kWhole>(gradient + i, n);
            form_momentum.template operator()<kWhole>(i, n, g, x);
            const V factor = hn::Load(d, factors + i);
            x[2] = hn::Mul(g, factor);
            x[3] = hn::Mul(x[0], factor);
          });
    } else {
      float* moment = u.v + k * size + first;
      put({at.at_m + k, at.at_mq + k, at.at_fac_g + k, at.at_fac_m + k, at.at_row + k,
           at.at_col + k, at.at_row_rsqrt + k, at.at_col_rsqrt + k},
          count, [&]<bool kWhole>(int64_t i, int64_t n, V(&x)[8]) HWY_ATTR {
            const V g = LoadSome<kWhole>(gradient + i, n);
            form_momentum.template operator()<kWhole>(i, n, g, x);
            V v = LoadSome<kWhole>(moment + i, n);
            if (kUpdate) {
              v = Decayed(task.decays->adafactor[k], v,
                          hn::Add(Bounded(hn::Mul(g, g)), hn::Set(d, kFactoredSquareFloor)));
              StoreSome<kWhole>(v, moment + i, n);
            }
            x[2] = hn::Mul(
                g, FlooredInverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kVectorEpsilon))));
            x[3] = hn::Mul(x[0], InverseRoot(hn::Add(v, hn::Set(d, task.momentum_epsilon))));
            x[4] = x[5] = v;
            x[6] = x[7] = InverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kMomentEpsilon)));
          });
    }
  }
}

// Calls visit(first, count) for the tiles of [first, end), each with what rows and columns give to
// it: the factors, and the biases if kBiases.
template <bool kFactored, bool kBiases, class Visit>
HWY_INLINE void ForAdafacTiles(const AdafacTask& task, const AdafacUpdate& u,
                               const AdafacScratch& scratch, int64_t first, int64_t end,
                               const Visit& visit) {
  const int64_t units = kBiases ? TouchedUnits(*task.network) : 0;
  std::optional<FactoredRuns> runs;
  if (kFactored) runs.emplace(*u.tensor->factored, first);
  for (; first < end; first += kAdafacTile) {
    const int64_t count = std::min(kAdafacTile, end - first);
    if (kFactored) SpreadRuns(u, count, task.at->f, units, *runs, scratch);
    visit(first, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_ADAFAC_FEATURES_INL_H_
