// Per-target header of Highway kernels, as base/vector_math-inl.h: the network of an optimizer with
// parameters in the lanes, and the step from its outputs.
#if defined(LOPT_NETWORK_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_NETWORK_COLUMNS_INL_H_
#undef LOPT_NETWORK_COLUMNS_INL_H_
#else
#define LOPT_NETWORK_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <utility>

#include "lopt/base/dispatch.h"
#include "lopt/lopt/network/lanes-inl.h"
#include "lopt/lopt/network/packed_network.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// A tile of the network is kVectors vectors of parameters times kTile hidden units, all in
// registers.
constexpr int kVectors = 3;
constexpr int kTile = kManyRegisters ? 8 : 4;
constexpr int64_t kGroup = kVectors * kLanes;
static_assert(kGroup <= kHiddenRow && kStretch % kGroup == 0 && kStretch % kBlock == 0);

template <int kV, int kJ>
HWY_INLINE void StartTile(const float* HWY_RESTRICT bias, V (&tile)[kJ][kV]) {
  HWY_UNROLL(16)
  for (int j = 0; j < kJ; ++j) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) tile[j][v] = hn::Set(d, bias[j]);
  }
}

// tile += feature * weights.
template <int kV, int kJ>
HWY_INLINE void AddToTile(const V (&feature)[kV], const float* HWY_RESTRICT weights,
                          V (&tile)[kJ][kV]) {
  HWY_UNROLL(16)
  for (int j = 0; j < kJ; ++j) {
    const V weight = hn::Set(d, weights[j]);
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) tile[j][v] = hn::MulAdd(feature[v], weight, tile[j][v]);
  }
}

// Inputs of kV vectors each.
template <int kV>
struct InputsAt {
  HWY_INLINE void operator()(int k, V (&feature)[kV]) const {
    for (int v = 0; v < kV; ++v) feature[v] = hn::Load(d, x + (k * kV + v) * kLanes);
  }
  const float* x;
};

// A tile's start and all of its inputs.
template <int kV, int kJ>
HWY_INLINE void InnerTile(const float* HWY_RESTRICT x, int64_t inputs,
                          const float* HWY_RESTRICT weights, int64_t stride,
                          const float* HWY_RESTRICT bias, V (&tile)[kJ][kV]) {
  StartTile(bias, tile);
  HWY_UNROLL(1)
  for (int64_t k = 0; k < inputs; ++k) {
    V feature[kV];
    InputsAt<kV>{x}(0, feature);
    AddToTile(feature, weights, tile);
    x += kV * kLanes;
    weights += stride;
  }
}

// Stores hidden unit j of those at `out`.
template <int kV>
HWY_INLINE void StoreUnit(int j, const V (&sums)[kV], float* HWY_RESTRICT out) {
  HWY_UNROLL(8)
  for (int v = 0; v < kV; ++v) hn::Store(Relu(sums[v]), d, out + (j * kV + v) * kLanes);
}

template <int kV, int kJ>
HWY_INLINE void StoreTile(const V (&tile)[kJ][kV], float* HWY_RESTRICT out) {
  HWY_UNROLL(16)
  for (int j = 0; j < kJ; ++j) StoreUnit(j, tile[j], out);
}

// Inputs that a tile whose stores are paced adds between them.
constexpr int kPaced = 2;

// Adds the last kPaced inputs to two hidden units of a tile at a time, and stores them. load(k,
// feature) gives input k of these, whose weights begin at `weights`.
template <int kV, int kJ, class Load>
HWY_INLINE void FinishTile(const Load& load, const float* HWY_RESTRICT weights, int64_t stride,
                           V (&tile)[kJ][kV], float* HWY_RESTRICT out) {
  HWY_UNROLL(8)
  for (int j = 0; j < kJ; j += 2) {
    HWY_UNROLL(2)
    for (int k = 0; k < kPaced; ++k) {
      V feature[kV];
      load(k, feature);
      HWY_UNROLL(2)
      for (int i = j; i < j + 2; ++i) {
        const V weight = hn::Set(d, weights[k * stride + i]);
        for (int v = 0; v < kV; ++v) tile[i][v] = hn::MulAdd(feature[v], weight, tile[i][v]);
      }
    }
    StoreUnit(j, tile[j], out);
    StoreUnit(j + 1, tile[j + 1], out);
  }
}

template <int kV>
HWY_INLINE void StartOutputs(const NetworkWeights& net, V (&out)[2][kV]) {
  for (int v = 0; v < kV; ++v) {
    out[0][v] = hn::Set(d, net.output_bias[0]);
    out[1][v] = hn::Set(d, net.output_bias[1]);
  }
}

// Adds the first `units` hidden units of a tile of the last hidden layer to the outputs.
template <int kV, int kJ>
HWY_INLINE void AddTileToOutputs(const V (&tile)[kJ][kV], const float* HWY_RESTRICT w0,
                                 const float* HWY_RESTRICT w1, int64_t units, V (&out)[2][kV]) {
  HWY_UNROLL(8)
  for (int j = 0; j < kJ; ++j) {
    if (j < units) {
      HWY_UNROLL(3)
      for (int v = 0; v < kV; ++v) {
        const V x = Relu(tile[j][v]);
        out[0][v] = hn::MulAdd(x, hn::Set(d, w0[j]), out[0][v]);
        out[1][v] = hn::MulAdd(x, hn::Set(d, w1[j]), out[1][v]);
      }
    }
  }
}

template <int kV>
HWY_INLINE void StoreOutputs(const V (&out)[2][kV], float* HWY_RESTRICT outputs) {
  for (int v = 0; v < kV; ++v) {
    hn::Store(out[0][v], d, outputs + v * kLanes);
    hn::Store(out[1][v], d, outputs + kStretch + v * kLanes);
  }
}

// Calls body.template operator()<width>(first) for tiles that cover [0, hidden).
template <class Body>
HWY_INLINE void ForTiles(int64_t hidden, const Body& body) {
  int64_t j = 0;
  if constexpr (kTile == 8) {
    for (; j + 4 < hidden; j += 8) body.template operator()<8>(j);
  }
  for (; j < hidden; j += 4) body.template operator()<4>(j);
}

// The outputs of kV vectors of parameters, [2, kStretch]. `features` adds their features to a tile
// of the first layer: features.AddTo(weights, stride, but, tile), tile += features weights, all but
// so many at the end; features.count() there are, and features.LoadLast(k, out) gives the kPaced
// last.
template <int kV, class Features>
HWY_NOINLINE void ColumnOutputs(const NetworkWeights& net, const NetworkScratch& scratch,
                                const Features& features, float* HWY_RESTRICT outputs) {
  const int64_t hidden = net.hidden;
  const int64_t stride = net.stride;
  const bool paces = kLanes == 16 && PacesStores(HWY_TARGET);
  float* from = scratch.hidden0;
  float* to = scratch.hidden1;
  // The outputs fill registers, so they begin where the last hidden layer does.
  V out[2][kV];
  if (net.layers == 1) {
    StartOutputs(net, out);
    ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
      V tile[kJ][kV];
      StartTile(scratch.bias + j, tile);
      features.AddTo(scratch.input + j, stride, 0, tile);
      AddTileToOutputs(tile, net.output[0] + j, net.output[1] + j, hidden - j, out);
    });
  } else {
    ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
      V tile[kJ][kV];
      StartTile(scratch.bias + j, tile);
      const bool paced = paces && features.count() >= kPaced;
      features.AddTo(scratch.input + j, stride, paced ? kPaced : 0, tile);
      float* out = from + j * kV * kLanes;
      if (!paced) return StoreTile(tile, out);
      FinishTile([&](int k, V(&feature)[kV]) HWY_ATTR { features.LoadLast(k, feature); },
                 scratch.input + (features.count() - kPaced) * stride + j, stride, tile, out);
    });
    const float* HWY_RESTRICT weights = net.inner;
    for (int64_t layer = 2; layer < net.layers; ++layer) {
      ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
        V tile[kJ][kV];
        const bool paced = paces && hidden >= kPaced;
        const int64_t first = paced ? hidden - kPaced : hidden;
        InnerTile(from, first, weights + j, stride, weights + hidden * stride + j, tile);
        float* out = to + j * kV * kLanes;
        if (!paced) return StoreTile(tile, out);
        FinishTile(InputsAt<kV>{from + first * kV * kLanes}, weights + first * stride + j, stride,
                   tile, out);
      });
      std::swap(from, to);
      weights += (hidden + 1) * stride;
    }
    StartOutputs(net, out);
    ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
      V tile[kJ][kV];
      InnerTile(from, hidden, weights + j, stride, weights + hidden * stride + j, tile);
      AddTileToOutputs(tile, net.output[0] + j, net.output[1] + j, hidden - j, out);
    });
  }
  StoreOutputs(out, outputs);
}

// The same for a network of two hidden layers of kHidden units, which stay in registers as far as
// there are some. The last is computed four units at a time.
template <int kHidden, int kV, class Features>
HWY_INLINE void NarrowOutputs(const NetworkWeights& net, const NetworkScratch& scratch,
                              const Features& features, float* HWY_RESTRICT outputs) {
  constexpr int kFirst = kHidden < kTile ? kHidden : kTile;
  constexpr int kLast = 4;
  const int64_t stride = net.stride;
  V units[kHidden][kV];
  HWY_UNROLL(2)
  for (int first = 0; first < kHidden; first += kFirst) {
    V tile[kFirst][kV];
    StartTile(scratch.bias + first, tile);
    features.AddTo(scratch.input + first, stride, 0, tile);
    HWY_UNROLL(8)
    for (int j = 0; j < kFirst; ++j) {
      HWY_UNROLL(3)
      for (int v = 0; v < kV; ++v) units[first + j][v] = Relu(tile[j][v]);
    }
  }
  V out[2][kV];
  StartOutputs(net, out);
  HWY_UNROLL(4)
  for (int j = 0; j < kHidden; j += kLast) {
    V tile[kLast][kV];
    StartTile(net.inner + kHidden * stride + j, tile);
    HWY_UNROLL(16)
    for (int k = 0; k < kHidden; ++k) AddToTile(units[k], net.inner + k * stride + j, tile);
    AddTileToOutputs(tile, net.output[0] + j, net.output[1] + j, kLast, out);
  }
  StoreOutputs(out, outputs);
}

// Calls body.template operator()<kV>(first) for groups of kV <= kMost vectors that cover the
// parameters [first, end).
template <int kMost, class Body>
HWY_INLINE void ForGroups(int64_t first, int64_t end, const Body& body) {
  for (; first + (kMost - 1) * kLanes < end; first += kMost * kLanes) {
    body.template operator()<kMost>(first);
  }
  if constexpr (kMost > 1) {
    if (first < end) ForGroups<kMost - 1>(first, end, body);
  }
}

// The outputs of `count` <= kStretch parameters, in whole vectors, [2, kStretch].
// columns.template operator()<kV>(i) gives the features of kV vectors, the first of which starts
// with parameter i.
template <class ColumnsAt>
HWY_NOINLINE void StretchOutputs(const NetworkWeights& net, const NetworkScratch& scratch,
                                 const ColumnsAt& columns, int64_t count,
                                 float* HWY_RESTRICT outputs) {
  const auto narrow = [&]<int kHidden, int kMost>() HWY_ATTR {
    ForGroups<kMost>(0, count, [&]<int kV>(int64_t i) HWY_ATTR {
      NarrowOutputs<kHidden, kV>(net, scratch, columns.template operator()<kV>(i), outputs + i);
    });
  };
  if (net.layers == 2) {
    if (net.hidden == 4) return narrow.template operator()<4, kVectors>();
    if (net.hidden == 8) return narrow.template operator()<8, 2>();
    if constexpr (kManyRegisters) {
      if (net.hidden == 16) return narrow.template operator()<16, 2>();
    }
  }
  const auto outputs_of = [&]<int kV>(int64_t i) HWY_ATTR {
    ColumnOutputs<kV>(net, scratch, columns.template operator()<kV>(i), outputs + i);
  };
  if constexpr (!kManyRegisters) {
    if (HasSmallTiles(HWY_TARGET)) return ForGroups<2>(0, count, outputs_of);
  }
  ForGroups<kVectors>(0, count, outputs_of);
}

// Each x becomes e^x, the bits of Exp. Where all are small, or at least ordinary numbers, that
// takes fewer operations.
template <int kN>
HWY_INLINE void Exponentials(V (&x)[kN]) {
  const hn::RebindToSigned<D> di;
  // Numbers without their signs are ordered as their bits are, NaN behind infinity.
  auto largest = hn::Zero(di);
  HWY_UNROLL(4)
  for (int i = 0; i < kN; ++i) largest = hn::Max(largest, hn::BitCast(di, hn::Abs(x[i])));
  const auto all_below = [&](float limit) HWY_ATTR {
    return hn::AllTrue(di, hn::Lt(largest, hn::BitCast(di, hn::Set(d, limit))));
  };
  if (HWY_LIKELY(all_below(0.3465f))) {  // ln 2 / 2
    ExpOfFractions(d, x);
    return;
  }
  if (HWY_UNLIKELY(!all_below(86.0f))) {
    for (int i = 0; i < kN; ++i) x[i] = Exp(d, x[i]);
    return;
  }
  // Adding 1.5 2^23 rounds to an integer, which the lowest bits of the sum then hold.
  const V rounder = hn::Set(d, 12582912.0f);
  V sum[kN];
  HWY_UNROLL(4)
  for (int i = 0; i < kN; ++i) {
    sum[i] = hn::Add(hn::Mul(x[i], hn::Set(d, 1.44269504088896341f)), rounder);
    x[i] = MinusMultipleOfLn2(d, x[i], hn::Sub(sum[i], rounder));
  }
  ExpOfFractions(d, x);
  HWY_UNROLL(4)
  for (int i = 0; i < kN; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, sum[i]));
    x[i] = hn::BitCast(d, hn::Add(hn::BitCast(di, x[i]), exponent));
  }
}

// p <- p - o0 exp(o1 exp_mult) step_mult for `count` parameters, whose outputs are [2, kStretch].
HWY_INLINE void StepParams(float exp_mult, float step_mult, const float* HWY_RESTRICT outputs,
                           int64_t count, float* HWY_RESTRICT p) {
  const auto step = [&]<int kN>(int64_t i, const auto& load, const auto& store) HWY_ATTR {
    V x[kN];
    HWY_UNROLL(4)
    for (int n = 0; n < kN; ++n) {
      x[n] = hn::Mul(hn::Load(d, outputs + kStretch + i + n * kLanes), hn::Set(d, exp_mult));
    }
    Exponentials(x);
    HWY_UNROLL(4)
    for (int n = 0; n < kN; ++n) {
      const int64_t at = i + n * kLanes;
      const V change = hn::Mul(hn::Mul(hn::Load(d, outputs + at), x[n]), hn::Set(d, step_mult));
      store(hn::Sub(load(p + at), change), p + at);
    }
  };
  const auto load = [](const float* from) HWY_ATTR { return hn::LoadU(d, from); };
  const auto store = [](V x, float* to) HWY_ATTR { hn::StoreU(x, d, to); };
  constexpr int kTogether = 4;
  int64_t i = 0;
  for (; i + kTogether * kLanes <= count; i += kTogether * kLanes) {
    step.template operator()<kTogether>(i, load, store);
  }
  for (; i + kLanes <= count; i += kLanes) step.template operator()<1>(i, load, store);
  if (i < count) {
    step.template operator()<1>(
        i, [&](const float* from) HWY_ATTR { return LoadFirst(from, count - i); },
        [&](V x, float* to) HWY_ATTR { StoreFirst(x, to, count - i); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_NETWORK_COLUMNS_INL_H_
