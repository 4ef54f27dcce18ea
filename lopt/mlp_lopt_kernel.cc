#include "lopt/mlp_lopt_kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

// Vectors are kept in arrays, which vectors of unknown length (SVE, RISC-V) cannot be.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/mlp_lopt_kernel.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector_math-inl.h"

#ifndef LOPT_MLP_LOPT_KERNEL_ONCE
#define LOPT_MLP_LOPT_KERNEL_ONCE
namespace lopt {

// The network with every row of weights padded to `stride`, a multiple of 32, by zeros.
struct PackedNetwork {
  int64_t hidden;
  int64_t stride;
  int64_t layers;           // hidden layers
  const float* input;       // [8, stride]: of the features that depend on the parameter
  const float* times;       // [11, stride]
  const float* input_bias;  // [stride]
  const float* inner;       // layers - 1 times: weights [hidden, stride], then bias [stride]
  const float* output[2];   // [stride] each
  float output_bias[2];
  float exp_mult;
  float step_mult;
};

struct TensorPlace {
  int64_t offset;
  int64_t size;
  int64_t momenta;  // offset in the state
};

// What one call works on, and the memory it may use.
struct UpdateTask {
  const PackedNetwork* network;
  std::span<const TensorPlace> tensors;
  float step;
  const float* gradient;
  float* params;
  float* state;
  float* bias;     // [stride]
  float* input;    // [8, stride]
  float* hidden0;  // kHiddenRow floats for each unit
  float* hidden1;
  float* outputs;  // [2, kStretch]
};

// Floats that the kernel may keep per hidden unit: three vectors of 16 parameters.
constexpr int64_t kHiddenRow = 48;

// The network's outputs of so many parameters are kept until the parameters are stepped together.
constexpr int64_t kStretch = 384;

}  // namespace lopt
#endif  // LOPT_MLP_LOPT_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, MLPLOpt::kBlock>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kBlock = MLPLOpt::kBlock;
constexpr int kMomenta = MLPLOpt::kMomenta;
constexpr int kNormalized = MLPLOpt::kNormalized;
constexpr int kBlockState = kMomenta * kBlock;

// A tile of the network is kVectors vectors of parameters times kTile hidden units, all in
// registers.
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
constexpr int kVectors = 3;
constexpr int kTile = kManyRegisters ? 8 : 4;
constexpr int64_t kGroup = kVectors * kLanes;
static_assert(kGroup <= kHiddenRow && kStretch % kGroup == 0);

// Sums of squares are formed over this many blocks first, 16 terms in a lane, so that rounding
// errors do not grow with the size of the tensor.
constexpr int64_t kChunk = kLanes;

// max(x, 0) that passes NaN on.
HWY_INLINE V Relu(V x) { return AtLeast(hn::Zero(d), x); }

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

// p <- p - o0 exp(o1 exp_mult) step_mult for `count` parameters, whose outputs are [2, kStretch].
HWY_INLINE void StepParams(const PackedNetwork& net, const float* HWY_RESTRICT outputs,
                           int64_t count, float* HWY_RESTRICT p) {
  const auto stepped = [&](V param, int64_t i) HWY_ATTR {
    const V o0 = hn::Load(d, outputs + i);
    const V o1 = hn::Load(d, outputs + kStretch + i);
    const V magnitude = Exp(d, hn::Mul(o1, hn::Set(d, net.exp_mult)));
    return hn::Sub(param, hn::Mul(hn::Mul(o0, magnitude), hn::Set(d, net.step_mult)));
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(stepped(hn::LoadU(d, p + i), i), d, p + i);
  }
  if (i < count) StoreFirst(stepped(LoadFirst(p + i, count - i), i), p + i, count - i);
}

// --- Parameters in lanes -------------------------------------------------------------------

// kV vectors of neighbouring parameters and where their features are.
template <int kV>
struct Columns {
  const float* g;
  const float* p;
  const float* m[kV];
};

template <int kV, int kJ>
HWY_INLINE void StartTile(const float* HWY_RESTRICT bias, V (&tile)[kJ][kV]) {
  HWY_UNROLL(8)
  for (int j = 0; j < kJ; ++j) {
    HWY_UNROLL(3)
    for (int v = 0; v < kV; ++v) tile[j][v] = hn::Set(d, bias[j]);
  }
}

// tile += feature * weights.
template <int kV, int kJ>
HWY_INLINE void AddToTile(const V (&feature)[kV], const float* HWY_RESTRICT weights,
                          V (&tile)[kJ][kV]) {
  HWY_UNROLL(8)
  for (int j = 0; j < kJ; ++j) {
    const V weight = hn::Set(d, weights[j]);
    HWY_UNROLL(3)
    for (int v = 0; v < kV; ++v) tile[j][v] = hn::MulAdd(feature[v], weight, tile[j][v]);
  }
}

template <int kV, int kJ>
HWY_INLINE void InputTile(const Columns<kV>& at, const float* HWY_RESTRICT weights, int64_t stride,
                          const float* HWY_RESTRICT bias, V (&tile)[kJ][kV]) {
  V feature[kV];
  StartTile(bias, tile);
  for (int v = 0; v < kV; ++v) feature[v] = hn::LoadU(d, at.g + v * kLanes);
  AddToTile(feature, weights, tile);
  for (int v = 0; v < kV; ++v) feature[v] = hn::LoadU(d, at.p + v * kLanes);
  AddToTile(feature, weights + stride, tile);
  weights += 2 * stride;
  HWY_UNROLL(1)
  for (int k = 0; k < kMomenta; ++k) {
    for (int v = 0; v < kV; ++v) feature[v] = hn::LoadU(d, at.m[v] + k * kBlock);
    AddToTile(feature, weights, tile);
    weights += stride;
  }
}

template <int kV, int kJ>
HWY_INLINE void InnerTile(const float* HWY_RESTRICT x, int64_t inputs,
                          const float* HWY_RESTRICT weights, int64_t stride,
                          const float* HWY_RESTRICT bias, V (&tile)[kJ][kV]) {
  StartTile(bias, tile);
  HWY_UNROLL(1)
  for (int64_t k = 0; k < inputs; ++k) {
    V feature[kV];
    for (int v = 0; v < kV; ++v) feature[v] = hn::Load(d, x + v * kLanes);
    AddToTile(feature, weights, tile);
    x += kV * kLanes;
    weights += stride;
  }
}

template <int kV, int kJ>
HWY_INLINE void StoreTile(const V (&tile)[kJ][kV], float* HWY_RESTRICT out) {
  HWY_UNROLL(8)
  for (int j = 0; j < kJ; ++j) {
    HWY_UNROLL(3)
    for (int v = 0; v < kV; ++v) hn::Store(Relu(tile[j][v]), d, out + (j * kV + v) * kLanes);
  }
}

template <int kV>
HWY_INLINE void StartOutputs(const PackedNetwork& net, V (&out)[2][kV]) {
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

// Calls body.template operator()<width>(first) for tiles that cover [0, hidden).
template <class Body>
HWY_INLINE void ForTiles(int64_t hidden, const Body& body) {
  int64_t j = 0;
  if constexpr (kTile == 8) {
    for (; j + 4 < hidden; j += 8) body.template operator()<8>(j);
  }
  for (; j < hidden; j += 4) body.template operator()<4>(j);
}

template <int kV>
HWY_NOINLINE void ColumnOutputs(const UpdateTask& task, const Columns<kV>& at,
                                float* HWY_RESTRICT outputs) {
  const PackedNetwork& net = *task.network;
  const int64_t hidden = net.hidden;
  const int64_t stride = net.stride;
  float* from = task.hidden0;
  float* to = task.hidden1;
  // The outputs fill registers, so they begin where the last hidden layer does.
  V out[2][kV];
  if (net.layers == 1) {
    StartOutputs(net, out);
    ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
      V tile[kJ][kV];
      InputTile(at, task.input + j, stride, task.bias + j, tile);
      AddTileToOutputs(tile, net.output[0] + j, net.output[1] + j, hidden - j, out);
    });
  } else {
    ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
      V tile[kJ][kV];
      InputTile(at, task.input + j, stride, task.bias + j, tile);
      StoreTile(tile, from + j * kV * kLanes);
    });
    const float* HWY_RESTRICT weights = net.inner;
    for (int64_t layer = 2; layer < net.layers; ++layer) {
      ForTiles(hidden, [&]<int kJ>(int64_t j) HWY_ATTR {
        V tile[kJ][kV];
        InnerTile(from, hidden, weights + j, stride, weights + hidden * stride + j, tile);
        StoreTile(tile, to + j * kV * kLanes);
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
  for (int v = 0; v < kV; ++v) {
    hn::Store(out[0][v], d, outputs + v * kLanes);
    hn::Store(out[1][v], d, outputs + kStretch + v * kLanes);
  }
}

// The outputs of the parameters [first, first + kV kLanes) of a tensor.
template <int kV>
HWY_INLINE void ColumnOutputsAt(const UpdateTask& task, const float* g, const float* p,
                                const float* m, int64_t first, float* outputs) {
  Columns<kV> at;
  at.g = g + first;
  at.p = p + first;
  for (int v = 0; v < kV; ++v) {
    const int64_t i = first + v * kLanes;
    at.m[v] = m + i / kBlock * kBlockState + i % kBlock;
  }
  ColumnOutputs<kV>(task, at, outputs);
}

// Asks for the features of the parameters [first, first + kV kLanes) before they are needed.
template <int kV>
HWY_INLINE void PrefetchColumns(const float* g, const float* p, const float* m, int64_t first) {
  constexpr int kLine = 16;
  for (int i = 0; i < kV * kLanes; i += kLine) {
    hwy::Prefetch(g + first + i);
    hwy::Prefetch(p + first + i);
    const float* block = m + (first + i) / kBlock * kBlockState;
    for (int k = 0; k < kMomenta; ++k) hwy::Prefetch(block + k * kBlock);
  }
}

// --- Hidden units in lanes -----------------------------------------------------------------

// A tile is kRows parameters times kRowVectors vectors of hidden units.
constexpr int kRowVectors = 2;
constexpr int kRowUnits = kRowVectors * kLanes;

template <int kRows>
HWY_INLINE void StartRowTile(const float* HWY_RESTRICT bias, V (&tile)[kRows][kRowVectors]) {
  HWY_UNROLL(10)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kRowVectors; ++v) tile[i][v] = hn::Load(d, bias + v * kLanes);
  }
}

// tile += inputs times weights, where input k of row i is at x[i kRow + k kStep].
template <int kRow, int kStep, int kRows>
HWY_INLINE void AddToRowTile(const float* HWY_RESTRICT x, int64_t inputs,
                             const float* HWY_RESTRICT weights, int64_t stride,
                             V (&tile)[kRows][kRowVectors]) {
  HWY_UNROLL(1)
  for (int64_t k = 0; k < inputs; ++k) {
    V weight[kRowVectors];
    for (int v = 0; v < kRowVectors; ++v) weight[v] = hn::Load(d, weights + v * kLanes);
    HWY_UNROLL(10)
    for (int i = 0; i < kRows; ++i) {
      const V value = hn::Set(d, x[i * kRow]);
      HWY_UNROLL(2)
      for (int v = 0; v < kRowVectors; ++v) {
        tile[i][v] = hn::MulAdd(value, weight[v], tile[i][v]);
      }
    }
    x += kStep;
    weights += stride;
  }
}

// Hidden units [j, j + kRowUnits) of the first layer, whose `features` are [8, 16].
template <int kRows>
HWY_INLINE void InputRowTile(const UpdateTask& task, const float* HWY_RESTRICT features, int64_t j,
                             V (&tile)[kRows][kRowVectors]) {
  const PackedNetwork& net = *task.network;
  StartRowTile(task.bias + j, tile);
  AddToRowTile<1, kBlock>(features, kNormalized, net.input + j, net.stride, tile);
}

// The same of a later layer. Its inputs are [hidden / kRowUnits, kRows, kRowUnits].
template <int kRows>
HWY_INLINE void InnerRowTile(const PackedNetwork& net, const float* HWY_RESTRICT x,
                             const float* HWY_RESTRICT weights, int64_t j,
                             V (&tile)[kRows][kRowVectors]) {
  StartRowTile(weights + net.hidden * net.stride + j, tile);
  weights += j;
  for (int64_t k = 0; k < net.hidden; k += kRowUnits) {
    AddToRowTile<kRowUnits, 1>(x, std::min<int64_t>(kRowUnits, net.hidden - k), weights, net.stride,
                               tile);
    x += kRows * kRowUnits;
    weights += kRowUnits * net.stride;
  }
}

template <int kRows>
HWY_INLINE void StoreRowTile(const V (&tile)[kRows][kRowVectors], float* HWY_RESTRICT out) {
  HWY_UNROLL(10)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kRowVectors; ++v) {
      hn::Store(Relu(tile[i][v]), d, out + i * kRowUnits + v * kLanes);
    }
  }
}

// Adds hidden units [j, j + kRowUnits), as far as they exist, to the outputs.
template <int kRows>
HWY_INLINE void AddRowTileToOutputs(const V (&tile)[kRows][kRowVectors], const PackedNetwork& net,
                                    int64_t j, V (&out)[2][kRows]) {
  HWY_UNROLL(2)
  for (int v = 0; v < kRowVectors; ++v) {
    const int64_t first = j + v * kLanes;
    if (first >= net.hidden) break;
    const auto real = hn::FirstN(d, static_cast<size_t>(net.hidden - first));
    const V w0 = hn::Load(d, net.output[0] + first);
    const V w1 = hn::Load(d, net.output[1] + first);
    HWY_UNROLL(10)
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::IfThenElseZero(real, Relu(tile[i][v]));
      out[0][i] = hn::MulAdd(x, w0, out[0][i]);
      out[1][i] = hn::MulAdd(x, w1, out[1][i]);
    }
  }
}

// The outputs of kRows parameters, [2, kStretch]; up to 15 floats behind them are overwritten.
template <int kRows>
HWY_NOINLINE void OutputsOfRows(const UpdateTask& task, const float* HWY_RESTRICT features,
                                float* HWY_RESTRICT outputs) {
  const PackedNetwork& net = *task.network;
  float* from = task.hidden0;
  float* to = task.hidden1;
  V out[2][kRows];
  const auto one_lane = hn::FirstN(d, 1);
  for (int i = 0; i < kRows; ++i) {
    out[0][i] = hn::IfThenElseZero(one_lane, hn::Set(d, net.output_bias[0]));
    out[1][i] = hn::IfThenElseZero(one_lane, hn::Set(d, net.output_bias[1]));
  }
  const bool one_layer = net.layers == 1;
  for (int64_t j = 0; j < net.hidden; j += kRowUnits) {
    V tile[kRows][kRowVectors];
    InputRowTile(task, features, j, tile);
    if (one_layer) {
      AddRowTileToOutputs(tile, net, j, out);
    } else {
      StoreRowTile(tile, from + j * kRows);
    }
  }
  const float* HWY_RESTRICT weights = net.inner;
  for (int64_t layer = 2; layer <= net.layers; ++layer) {
    const bool last = layer == net.layers;
    for (int64_t j = 0; j < net.hidden; j += kRowUnits) {
      V tile[kRows][kRowVectors];
      InnerRowTile(net, from, weights, j, tile);
      if (last) {
        AddRowTileToOutputs(tile, net, j, out);
      } else {
        StoreRowTile(tile, to + j * kRows);
      }
    }
    std::swap(from, to);
    weights += (net.hidden + 1) * net.stride;
  }
  StoreLaneSums<kRows>(out[0], outputs);
  StoreLaneSums<kRows>(out[1], outputs + kStretch);
}

// The outputs of `count` < 16 parameters whose features are [8, 16], multiplied by `scales` here.
HWY_INLINE void OutputsOfTail(const UpdateTask& task, float* HWY_RESTRICT features,
                              const float* HWY_RESTRICT scales, int count) {
  for (int k = 0; k < kNormalized; ++k) {
    for (int i = 0; i < count; i += kLanes) {
      float* at = features + k * kBlock + i;
      hn::Store(hn::Mul(hn::Load(d, at), hn::Set(d, scales[k])), d, at);
    }
  }
  float* outputs = task.outputs;
  int i = 0;
  if constexpr (kManyRegisters) {
    for (; i + 10 <= count; i += 10) OutputsOfRows<10>(task, features + i, outputs + i);
  }
  for (; i + 5 <= count; i += 5) OutputsOfRows<5>(task, features + i, outputs + i);
  for (; i + 2 <= count; i += 2) OutputsOfRows<2>(task, features + i, outputs + i);
  for (; i < count; ++i) OutputsOfRows<1>(task, features + i, outputs + i);
}

// --- Whole tensors -------------------------------------------------------------------------

struct PaddedTimeScales {
  constexpr PaddedTimeScales() {
    for (int k = 0; k < kBlock; ++k) x[k] = k < MLPLOpt::kTimes ? MLPLOpt::kTimeScales[k] : 1;
  }
  alignas(64) float x[kBlock] = {};
};
constexpr PaddedTimeScales kPaddedTimeScales;

// task.bias = input_bias + time features times their weights.
HWY_INLINE void FoldTimes(const UpdateTask& task) {
  const PackedNetwork& net = *task.network;
  HWY_ALIGN float times[kBlock];
  const V one = hn::Set(d, 1.0f);
  for (int k = 0; k < kBlock; k += kLanes) {
    // tanh(x) = 1 - 2 / (exp(2 x) + 1)
    const V x = hn::Sub(hn::Div(hn::Set(d, task.step), hn::Load(d, kPaddedTimeScales.x + k)), one);
    const V e = Exp(d, hn::Add(x, x));
    hn::Store(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), d, times + k);
  }
  for (int64_t j = 0; j < net.stride; j += kLanes) {
    V sum = hn::Load(d, net.input_bias + j);
    for (int k = 0; k < MLPLOpt::kTimes; ++k) {
      sum = hn::MulAdd(hn::Set(d, times[k]), hn::Load(d, net.times + k * net.stride + j), sum);
    }
    hn::Store(sum, d, task.bias + j);
  }
}

// What the eight features of a tensor of `size` parameters are multiplied by, from the sums of
// their squares in lanes. Writes 16 floats.
HWY_INLINE void NormalizingScales(const V* square_sums, int64_t size, float* HWY_RESTRICT scales) {
  StoreLaneSums<kNormalized>(square_sums, scales);
  const V epsilon = hn::Set(d, MLPLOpt::kNormalizerEpsilon);
  const V count = hn::Set(d, static_cast<float>(size));
  for (int k = 0; k < kNormalized; k += kLanes) {
    const V mean = hn::Div(hn::Load(d, scales + k), count);
    const V root = hn::Sqrt(hn::Add(epsilon, mean));
    hn::Store(hn::Div(hn::Set(d, 1.0f), root), d, scales + k);
  }
}

// task.input = the input weights times the scales.
HWY_INLINE void FoldScales(const UpdateTask& task, const float* HWY_RESTRICT scales) {
  const PackedNetwork& net = *task.network;
  for (int k = 0; k < kNormalized; ++k) {
    const V scale = hn::Set(d, scales[k]);
    for (int64_t j = k * net.stride; j < (k + 1) * net.stride; j += kLanes) {
      hn::Store(hn::Mul(scale, hn::Load(d, net.input + j)), d, task.input + j);
    }
  }
}

void UpdateTensor(const UpdateTask& task, const TensorPlace& place) {
  const float* g = task.gradient + place.offset;
  float* p = task.params + place.offset;
  float* m = task.state + place.momenta;
  const int64_t blocks = place.size / kBlock;
  const int64_t whole = blocks * kBlock;
  const int tail = static_cast<int>(place.size - whole);

  V sums[kNormalized];
  HWY_UNROLL(8)
  for (int k = 0; k < kNormalized; ++k) sums[k] = hn::Zero(d);
  for (int64_t b = 0; b < blocks; b += kChunk) {
    UpdateMomenta(g + b * kBlock, p + b * kBlock, m + b * kBlockState, std::min(kChunk, blocks - b),
                  sums);
  }
  HWY_ALIGN float features[kNormalized * kBlock];
  if (tail > 0) {
    UpdateTailMomenta(g + whole, p + whole, m + blocks * kBlockState, tail, sums, features);
  }
  HWY_ALIGN float scales[kBlock];
  NormalizingScales(sums, place.size, scales);

  if (blocks > 0) {
    FoldScales(task, scales);
    for (int64_t first = 0; first < whole; first += kStretch) {
      const int64_t end = std::min(whole, first + kStretch);
      float* outputs = task.outputs;
      int64_t i = first;
      for (; i + kGroup <= end; i += kGroup) {
        if (i + 2 * kGroup <= whole) PrefetchColumns<kVectors>(g, p, m, i + kGroup);
        ColumnOutputsAt<kVectors>(task, g, p, m, i, outputs);
        outputs += kGroup;
      }
      if (i + 2 * kLanes <= end) {
        ColumnOutputsAt<2>(task, g, p, m, i, outputs);
        outputs += 2 * kLanes;
        i += 2 * kLanes;
      }
      if (i < end) ColumnOutputsAt<1>(task, g, p, m, i, outputs);
      StepParams(*task.network, task.outputs, end - first, p + first);
    }
  }
  if (tail > 0) {
    OutputsOfTail(task, features, scales, tail);
    StepParams(*task.network, task.outputs, tail, p + whole);
  }
}

void Update(const UpdateTask& task) {
  FoldTimes(task);
  for (const TensorPlace& place : task.tensors) {
    if (place.size > 0) UpdateTensor(task, place);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(Update);

// Rows of 16 floats, aligned for every vector.
struct alignas(64) Line {
  float x[16];
};

class Kernel : public UpdateRule {
 public:
  Kernel(const MLPLOptOptions& options, const Layout& params, const Layout& state,
         std::span<const float> theta)
      : UpdateRule(params, state) {
    Pack(options, theta);
    for (size_t n = 0; n < params.entries().size(); ++n) {
      const LayoutEntry& entry = params.entries()[n];
      tensors_.push_back({entry.offset, entry.size, state.entries()[n].offset});
    }
  }

 private:
  void Pack(const MLPLOptOptions& options, std::span<const float> theta) {
    const int64_t hidden = options.hidden_size;
    const int64_t lines = 2 * ((hidden + 31) / 32);
    const int64_t stride = 16 * lines;
    const int64_t inner_rows = (options.hidden_layers - 1) * (hidden + 1);
    const int64_t input_rows = MLPLOpt::kNormalized + MLPLOpt::kTimes + 1;
    lines_.resize((input_rows + inner_rows + 2) * lines);
    float* packed = lines_.front().x;
    const float* from = theta.data();
    for (int64_t row = 0; row < input_rows + inner_rows; ++row) {
      std::copy_n(from, hidden, packed + row * stride);
      from += hidden;
    }
    float* output = packed + (input_rows + inner_rows) * stride;
    for (int64_t j = 0; j < hidden; ++j) {
      output[j] = from[2 * j];
      output[stride + j] = from[2 * j + 1];
    }
    from += 2 * hidden;
    network_ = {.hidden = hidden,
                .stride = stride,
                .layers = options.hidden_layers,
                .input = packed,
                .times = packed + MLPLOpt::kNormalized * stride,
                .input_bias = packed + (input_rows - 1) * stride,
                .inner = packed + input_rows * stride,
                .output = {output, output + stride},
                .output_bias = {from[0], from[1]},
                .exp_mult = static_cast<float>(options.exp_mult),
                .step_mult = static_cast<float>(options.step_mult)};
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const int64_t stride = network_.stride;
    const UpdateTask task = {
        .network = &network_,
        .tensors = tensors_,
        .step = static_cast<float>(info.step),
        .gradient = gradient.data(),
        .params = params.data(),
        .state = state.data(),
        .bias = scratch.Take<float>(stride).data(),
        .input = scratch.Take<float>(MLPLOpt::kNormalized * stride).data(),
        .hidden0 = scratch.Take<float>(kHiddenRow * stride).data(),
        .hidden1 = scratch.Take<float>(kHiddenRow * stride).data(),
        .outputs = scratch.Take<float>(2 * kStretch).data(),
    };
    HWY_DYNAMIC_DISPATCH(Update)(task);
  }

  std::vector<Line> lines_;
  PackedNetwork network_;
  std::vector<TensorPlace> tensors_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeMlpLoptKernel(const MLPLOptOptions& options, const Layout& params,
                                              const Layout& state, std::span<const float> theta) {
  return std::make_unique<Kernel>(options, params, state, theta);
}

}  // namespace lopt
#endif  // HWY_ONCE
