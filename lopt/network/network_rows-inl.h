// Per-target header of Highway kernels, as base/vector_math-inl.h: the network of an optimizer with
// hidden units in the lanes, for the last few parameters of a tensor.
#if defined(LOPT_NETWORK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_NETWORK_ROWS_INL_H_
#undef LOPT_NETWORK_ROWS_INL_H_
#else
#define LOPT_NETWORK_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lopt/lopt/network/lanes-inl.h"
#include "lopt/lopt/network/packed_network.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

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

// Hidden units [j, j + kRowUnits) of the first layer, whose `features` are [inputs, 16].
template <int kRows>
HWY_INLINE void InputRowTile(const NetworkWeights& net, const NetworkScratch& scratch,
                             const float* HWY_RESTRICT features, int64_t j,
                             V (&tile)[kRows][kRowVectors]) {
  StartRowTile(scratch.bias + j, tile);
  AddToRowTile<1, kBlock>(features, net.inputs, net.input + j, net.stride, tile);
}

// The same of a later layer. Its inputs are [hidden / kRowUnits, kRows, kRowUnits].
template <int kRows>
HWY_INLINE void InnerRowTile(const NetworkWeights& net, const float* HWY_RESTRICT x,
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
HWY_INLINE void AddRowTileToOutputs(const V (&tile)[kRows][kRowVectors], const NetworkWeights& net,
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
HWY_NOINLINE void OutputsOfRows(const NetworkWeights& net, const NetworkScratch& scratch,
                                const float* HWY_RESTRICT features, float* HWY_RESTRICT outputs) {
  float* from = scratch.hidden0;
  float* to = scratch.hidden1;
  V out[2][kRows];
  const auto one_lane = hn::FirstN(d, 1);
  for (int i = 0; i < kRows; ++i) {
    out[0][i] = hn::IfThenElseZero(one_lane, hn::Set(d, net.output_bias[0]));
    out[1][i] = hn::IfThenElseZero(one_lane, hn::Set(d, net.output_bias[1]));
  }
  const bool one_layer = net.layers == 1;
  for (int64_t j = 0; j < net.hidden; j += kRowUnits) {
    V tile[kRows][kRowVectors];
    InputRowTile(net, scratch, features, j, tile);
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

// The outputs of `count` < 16 parameters whose features are [inputs, 16], times their scales.
HWY_INLINE void OutputsOfTail(const NetworkWeights& net, const NetworkScratch& scratch,
                              const float* HWY_RESTRICT features, int count) {
  float* outputs = scratch.outputs;
  int i = 0;
  if constexpr (kManyRegisters) {
    for (; i + 10 <= count; i += 10) OutputsOfRows<10>(net, scratch, features + i, outputs + i);
  }
  for (; i + 5 <= count; i += 5) OutputsOfRows<5>(net, scratch, features + i, outputs + i);
  for (; i + 2 <= count; i += 2) OutputsOfRows<2>(net, scratch, features + i, outputs + i);
  for (; i < count; ++i) OutputsOfRows<1>(net, scratch, features + i, outputs + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_NETWORK_ROWS_INL_H_
