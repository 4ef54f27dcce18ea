#include "lopt/lopt/network/bfloat16_layers_kernel.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/network/bfloat16_layers_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/lopt/network/lanes-inl.h"
#include "lopt/lopt/network/packed_network.h"
#include "lopt/lopt/network/precision.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// RoundToBfloat16 of each.
HWY_INLINE V RoundedToBfloat16(V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto exponent = hn::And(bits, hn::Set(du, 0x7f800000u));
  const auto high = hn::Set(du, 0xffff0000u);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  auto rounded = hn::And(hn::Add(bits, hn::Add(last, hn::Set(du, 0x7fffu))), high);
  rounded = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), hn::And(bits, hn::Set(du, 0x80000000u)),
                           rounded);
  const auto quiet =
      hn::IfThenElse(hn::Eq(hn::And(bits, hn::Set(du, 0x007fffffu)), hn::Zero(du)),
                     hn::And(bits, high), hn::Or(hn::And(bits, high), hn::Set(du, 0x00400000u)));
  rounded = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7f800000u)), quiet, rounded);
  return hn::BitCast(d, rounded);
}

// Hidden units whose sums are in registers together: an even, an odd and a whole one of each.
constexpr int kBfloat16Units = 4;

// tile = bias + the `inputs` vectors at `x`, which are rounded, times the weights, in the order
// that Precision says.
HWY_INLINE void Bfloat16Tile(const float* HWY_RESTRICT x, int64_t inputs,
                             const float* HWY_RESTRICT weights, int64_t stride,
                             const float* HWY_RESTRICT bias, V (&tile)[kBfloat16Units]) {
  HWY_UNROLL(4)
  for (int j = 0; j < kBfloat16Units; ++j) tile[j] = hn::Set(d, bias[j]);
  const auto add = [&](int64_t k, V(&sums)[kBfloat16Units]) HWY_ATTR {
    const V input = hn::Load(d, x + k * kLanes);
    HWY_UNROLL(4)
    for (int j = 0; j < kBfloat16Units; ++j) {
      sums[j] = hn::MulAdd(input, hn::Set(d, weights[k * stride + j]), sums[j]);
    }
  };
  for (int64_t first = 0; first < inputs; first += kBfloat16Inputs) {
    const int64_t end = std::min(inputs, first + kBfloat16Inputs);
    V even[kBfloat16Units];
    V odd[kBfloat16Units];
    HWY_UNROLL(4)
    for (int j = 0; j < kBfloat16Units; ++j) even[j] = odd[j] = hn::Zero(d);
    int64_t k = first;
    for (; k + 1 < end; k += 2) {
      add(k, even);
      add(k + 1, odd);
    }
    if (k < end) add(k, even);
    HWY_UNROLL(4)
    for (int j = 0; j < kBfloat16Units; ++j) {
      tile[j] = hn::Add(tile[j], hn::Add(even[j], odd[j]));
    }
  }
}

// Sets outputs[i] and outputs[kStretch + i], i < kBlock, from `features` [inputs, kBlock].
HWY_INLINE void OutputsOfBlock(const NetworkWeights& net, const NetworkScratch& scratch,
                               const float* HWY_RESTRICT features, float* HWY_RESTRICT outputs) {
  const int64_t hidden = net.hidden;
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    float* x = scratch.hidden0;
    float* to = scratch.hidden1;
    for (int64_t k = 0; k < net.inputs; ++k) {
      hn::Store(RoundedToBfloat16(hn::Load(d, features + k * kBlock + i)), d, x + k * kLanes);
    }
    V out0 = hn::Set(d, net.output_bias[0]);
    V out1 = hn::Set(d, net.output_bias[1]);
    const float* weights = net.input;
    const float* bias = scratch.bias;
    int64_t inputs = net.inputs;
    for (int64_t layer = 1; layer <= net.layers; ++layer) {
      for (int64_t j = 0; j < hidden; j += kBfloat16Units) {
        V tile[kBfloat16Units];
        Bfloat16Tile(x, inputs, weights + j, net.stride, bias + j, tile);
        for (int u = 0; u < kBfloat16Units; ++u) {
          const V unit = Relu(tile[u]);
          if (layer < net.layers) {
            hn::Store(RoundedToBfloat16(unit), d, to + (j + u) * kLanes);
          } else if (j + u < hidden) {
            out0 = hn::MulAdd(unit, hn::Set(d, net.output[0][j + u]), out0);
            out1 = hn::MulAdd(unit, hn::Set(d, net.output[1][j + u]), out1);
          }
        }
      }
      weights = layer == 1 ? net.inner : weights + (hidden + 1) * net.stride;
      bias = weights + hidden * net.stride;
      inputs = hidden;
      std::swap(x, to);
    }
    hn::Store(out0, d, outputs + i);
    hn::Store(out1, d, outputs + kStretch + i);
  }
}

// The two outputs of the parameters of so many blocks.
void OutputsOfBlocks(const NetworkWeights& net, const NetworkScratch& scratch,
                     const float* features, int64_t blocks, float* outputs) {
  for (int64_t b = 0; b < blocks; ++b) {
    OutputsOfBlock(net, scratch, features + b * net.inputs * kBlock, outputs + b * kBlock);
  }
}

// Whether the instruction set is one that goes with AMX.
bool GoesWithTiles() { return HWY_ARCH_X86 != 0 && HWY_TARGET <= HWY_AVX3; }

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(OutputsOfBlocks);
HWY_EXPORT(GoesWithTiles);

}  // namespace

Bfloat16Layers::Bfloat16Layers(const NetworkWeights& net, const NetworkScratch& scratch,
                               Workspace& workspace)
    : net_(net), scratch_(scratch) {
  if (net.tiles != nullptr && LOPT_DISPATCH(GoesWithTiles)()) {
    tiles_.emplace(*net.tiles, scratch.bias, workspace);
  }
}

void Bfloat16Layers::Outputs(const float* features, int64_t blocks, float* outputs) const {
  if (tiles_) return tiles_->Outputs(features, blocks, outputs);
  LOPT_DISPATCH(OutputsOfBlocks)(net_, scratch_, features, blocks, outputs);
}

}  // namespace lopt
#endif  // HWY_ONCE
