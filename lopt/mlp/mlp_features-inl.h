// Per-target header of Highway kernels, as base/vector_math-inl.h: the features of MLPLOpt.
#if defined(LOPT_MLP_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_MLP_FEATURES_INL_H_
#undef LOPT_MLP_FEATURES_INL_H_
#else
#define LOPT_MLP_FEATURES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/network_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int kMomenta = MLPLOpt::kMomenta;
constexpr int kNormalized = MLPLOpt::kNormalized;
constexpr int kBlockState = kMomenta * kBlock;
static_assert(kBlock == MLPLOpt::kBlock);

// decay m + (1 - decay) gradient; adds its square to `sum`.
HWY_INLINE V Momentum(float decay, V m, V gradient, V& sum) {
  const V updated = hn::MulAdd(hn::Set(d, decay), m, hn::Mul(hn::Set(d, 1.0f - decay), gradient));
  sum = hn::MulAdd(updated, updated, sum);
  return updated;
}

// Updates the momenta of `blocks` blocks and adds the squares of their features to `sums`.
HWY_INLINE void UpdateMomenta(const float* HWY_RESTRICT g, const float* HWY_RESTRICT p,
                              float* HWY_RESTRICT m, int64_t blocks, V* HWY_RESTRICT sums) {
  V s[kNormalized];
  HWY_UNROLL(8)
  for (int k = 0; k < kNormalized; ++k) s[k] = hn::Zero(d);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int i = 0; i < kBlock; i += kLanes) {
      const V gradient = hn::LoadU(d, g + i);
      const V param = hn::LoadU(d, p + i);
      s[0] = hn::MulAdd(gradient, gradient, s[0]);
      s[1] = hn::MulAdd(param, param, s[1]);
      HWY_UNROLL(6)
      for (int k = 0; k < kMomenta; ++k) {
        float* at = m + k * kBlock + i;
        hn::StoreU(Momentum(MLPLOpt::kDecays[k], hn::LoadU(d, at), gradient, s[2 + k]), d, at);
      }
    }
    g += kBlock;
    p += kBlock;
    m += kBlockState;
  }
  for (int k = 0; k < kNormalized; ++k) sums[k] = hn::Add(sums[k], s[k]);
}

// The same for the last block of a tensor, of which `count` parameters exist. Also writes the
// features of the block, [8, 16], as far as vectors with such parameters reach.
HWY_INLINE void UpdateTailMomenta(const float* HWY_RESTRICT g, const float* HWY_RESTRICT p,
                                  float* HWY_RESTRICT m, int64_t count, V* HWY_RESTRICT sums,
                                  float* HWY_RESTRICT features) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const V gradient = LoadFirst(g + i, count - i);
    const V param = LoadFirst(p + i, count - i);
    hn::Store(gradient, d, features + i);
    hn::Store(param, d, features + kBlock + i);
    sums[0] = hn::MulAdd(gradient, gradient, sums[0]);
    sums[1] = hn::MulAdd(param, param, sums[1]);
    HWY_UNROLL(6)
    for (int k = 0; k < kMomenta; ++k) {
      float* at = m + k * kBlock + i;
      const V updated = Momentum(MLPLOpt::kDecays[k], hn::LoadU(d, at), gradient, sums[2 + k]);
      hn::StoreU(updated, d, at);
      hn::Store(updated, d, features + (2 + k) * kBlock + i);
    }
  }
}

// kV vectors of neighbouring parameters by where their features are.
template <int kV>
struct Columns {
  // Vectors of a block; those of the next block are as far apart.
  static constexpr int kInBlock = std::min(kV, kBlock / kLanes);

  // The parameters from the one numbered `first` of a tensor on.
  HWY_INLINE Columns(const float* gradient, const float* params, const float* momenta,
                     int64_t first)
      : g(gradient + first), p(params + first) {
    HWY_UNROLL(4)
    for (int v = 0; v < kInBlock; ++v) {
      const auto i = static_cast<uint64_t>(first + v * kLanes);
      m[v] = momenta + i / kBlock * kBlockState + i % kBlock;
    }
  }

  static constexpr int64_t count() { return kNormalized; }

  HWY_INLINE void LoadMomentum(int64_t k, V (&feature)[kV]) const {
    for (int v = 0; v < kV; ++v) {
      feature[v] = hn::LoadU(d, m[v % kInBlock] + v / kInBlock * kBlockState + k * kBlock);
    }
  }
  HWY_INLINE void LoadLast(int k, V (&feature)[kV]) const {
    LoadMomentum(kMomenta - kPaced + k, feature);
  }

  template <int kJ>
  HWY_INLINE void AddTo(const float* HWY_RESTRICT weights, int64_t stride, int but,
                        V (&tile)[kJ][kV]) const {
    V feature[kV];
    for (int v = 0; v < kV; ++v) feature[v] = hn::LoadU(d, g + v * kLanes);
    AddToTile(feature, weights, tile);
    for (int v = 0; v < kV; ++v) feature[v] = hn::LoadU(d, p + v * kLanes);
    AddToTile(feature, weights + stride, tile);
    weights += 2 * stride;
    HWY_UNROLL(1)
    for (int k = 0; k < kMomenta - but; ++k) {
      LoadMomentum(k, feature);
      AddToTile(feature, weights, tile);
      weights += stride;
    }
  }

  const float* g;
  const float* p;
  const float* m[kInBlock];
};

// Brings the lines of `count` floats to the first-level cache.
HWY_INLINE void Prefetch(const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) hwy::Prefetch(from + i);
}

// Gives them from any parameter of a tensor on, and where `prefetch` asks for those of four tiles
// later.
struct ColumnsOf {
  template <int kV>
  HWY_INLINE Columns<kV> operator()(int64_t first) const {
    if (prefetch) {
      constexpr int64_t kCount = kV * kLanes;
      const int64_t later = first + 4 * kCount;
      Prefetch(g + later, kCount);
      Prefetch(p + later, kCount);
      Prefetch(m + later / kBlock * kBlockState, (kCount + kBlock - 1) / kBlock * kBlockState);
    }
    return Columns<kV>(g, p, m, first);
  }

  const float* g;
  const float* p;
  const float* m;
  bool prefetch;
};

struct PaddedTimeScales {
  constexpr PaddedTimeScales() {
    for (int k = 0; k < kBlock; ++k) x[k] = k < MLPLOpt::kTimes ? MLPLOpt::kTimeScales[k] : 1;
  }
  alignas(64) float x[kBlock] = {};
};
constexpr PaddedTimeScales kPaddedTimeScales;

// scratch.bias = input_bias + time features times their weights, those of progress behind the rest.
HWY_INLINE void FoldTimes(const NetworkWeights& net, float step, const NetworkScratch& scratch,
                          std::span<const float> progress = {}) {
  HWY_ALIGN float times[kBlock];
  const V one = hn::Set(d, 1.0f);
  for (int k = 0; k < kBlock; k += kLanes) {
    // tanh(x) = 1 - 2 / (exp(2 x) + 1)
    const V x = hn::Sub(hn::Div(hn::Set(d, step), hn::Load(d, kPaddedTimeScales.x + k)), one);
    const V e = Exp(d, hn::Add(x, x));
    hn::Store(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), d, times + k);
  }
  for (int64_t j = 0; j < net.hidden; j += kLanes) {
    V sum = hn::Load(d, net.input_bias + j);
    for (int k = 0; k < MLPLOpt::kTimes; ++k) {
      sum = hn::MulAdd(hn::Set(d, times[k]), hn::Load(d, net.times + k * net.stride + j), sum);
    }
    for (size_t k = 0; k < progress.size(); ++k) {
      const float* weights = net.times + (MLPLOpt::kTimes + k) * net.stride + j;
      sum = hn::MulAdd(hn::Set(d, progress[k]), hn::Load(d, weights), sum);
    }
    hn::Store(sum, d, scratch.bias + j);
  }
}

// What the eight features of a tensor of `size` parameters are multiplied by, in place of the sums
// of their squares. Writes 16 floats.
HWY_INLINE void NormalizingScales(float normalizer_epsilon, int64_t size,
                                  float* HWY_RESTRICT scales) {
  const V epsilon = hn::Set(d, normalizer_epsilon);
  const V count = hn::Set(d, static_cast<float>(size));
  for (int k = 0; k < kNormalized; k += kLanes) {
    const V mean = hn::Div(hn::Load(d, scales + k), count);
    const V root = hn::Sqrt(hn::Add(epsilon, mean));
    hn::Store(hn::Div(hn::Set(d, 1.0f), root), d, scales + k);
  }
}

// scratch.input = the input weights times the scales.
HWY_INLINE void FoldScales(const NetworkWeights& net, const NetworkScratch& scratch,
                           const float* HWY_RESTRICT scales) {
  for (int k = 0; k < net.inputs; ++k) {
    const V scale = hn::Set(d, scales[k]);
    for (int64_t j = k * net.stride; j < k * net.stride + net.hidden; j += kLanes) {
      hn::Store(hn::Mul(scale, hn::Load(d, net.input + j)), d, scratch.input + j);
    }
  }
}

// The features [8, 16] of `count` < 16 parameters times their scales.
HWY_INLINE void ScaleTail(const float* HWY_RESTRICT scales, int count,
                          float* HWY_RESTRICT features) {
  for (int k = 0; k < kNormalized; ++k) {
    for (int i = 0; i < count; i += kLanes) {
      float* at = features + k * kBlock + i;
      hn::Store(hn::Mul(hn::Load(d, at), hn::Set(d, scales[k])), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_MLP_FEATURES_INL_H_
