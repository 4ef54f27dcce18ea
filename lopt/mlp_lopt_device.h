#pragma once

#include <cmath>
#include <cstdint>

#include "base/block_device.h"
#include "base/replica_device.h"
#include "lopt/mlp_lopt_step_device.h"

namespace lopt {

// One tensor of the params.
struct DeviceTensor {
  int64_t offset;       // in params
  int64_t size;         // elements
  int64_t state;        // offset in the state
  int64_t first_group;  // of groups of neighbouring elements, counted over all tensors
};

// What the functions below take of an MLPLOpt.
struct MlpLoptArgs {
  MlpLoptStepOptions options;
  int hidden;  // units of a layer
  int layers;  // hidden layers
  int tensors;
  const DeviceTensor* tensor;  // [tensors]
  int64_t groups;              // of all tensors
  int64_t state_size;          // S
};

// The rule of MLPLOpt on a device, for networks of at most kHidden units a layer, a multiple of 4:
// units that a network has less are zeros. A phase updates a tensor's momenta, a few add up the
// squares of its features; then one phase runs the network for all parameters, kGroup neighbours
// on a thread, whose hidden units stay in registers.
template <int kHidden>
struct MlpLoptDevice {
  static constexpr int kMomenta = MlpLoptNumbers::kMomenta;
  static constexpr int kNormalized = MlpLoptNumbers::kNormalized;
  static constexpr int kTimes = MlpLoptNumbers::kTimes;
  static constexpr int kBlock = MlpLoptNumbers::kBlock;
  // Neighbours that one thread steps together: each weight that is read serves all of them, and
  // their units fill at most half of the registers.
  static constexpr int kGroup = kHidden <= 16 ? 4 : kHidden <= 32 ? 2 : 1;
  // Floats of a block of the state, and of one of a resident replica's: 16 more, so that
  // neighbouring blocks are in different banks.
  static constexpr int kBlockState = kMomenta * kBlock;
  static constexpr int kResidentBlock = kBlockState + kBlock;

  using Args = MlpLoptArgs;

  static LOPT_DEVICE int Steady(const Args& args) {  // features of the step
    return kTimes + (args.options.progress_features ? MlpLoptNumbers::kProgress : 0);
  }

  // Packed weights: every row of units padded to kHidden.
  static constexpr int kInput = 0;                                   // [kNormalized, kHidden]
  static constexpr int kInputBias = kInput + kNormalized * kHidden;  // [kHidden]
  static constexpr int kOutput = kInputBias + kHidden;               // [kHidden, 2]
  static constexpr int kOutputBias = kOutput + 2 * kHidden;          // [2], two unused
  static constexpr int kSteady = kOutputBias + 4;                    // [Steady, kHidden]
  static constexpr int kInnerSize = (kHidden + 1) * kHidden;         // weights, then bias
  static LOPT_DEVICE int Inner(const Args& args) { return kSteady + Steady(args) * kHidden; }
  static LOPT_DEVICE int64_t WeightFloats(const Args& args) {
    return Inner(args) + int64_t{args.layers - 1} * kInnerSize;
  }

  // Scratch: the bias of the first layer with the features of the step, these features, and for
  // each tensor the scales of its features and the factor of its steps; then partial sums.
  static constexpr int kFeatures = kHidden;
  static constexpr int kScales = kFeatures + 16;
  static constexpr int kTensorScales = 12;  // kNormalized scales, the factor, three unused
  static_assert(kTimes + MlpLoptNumbers::kProgress <= 16 && kNormalized < kTensorScales);
  static LOPT_DEVICE int64_t PartialSums(const Args& args) {
    return kScales + int64_t{args.tensors} * kTensorScales;
  }
  static int64_t ScratchFloats(const Args& args, int threads) {
    return PartialSums(args) + int64_t{kNormalized} * threads;
  }
  static int64_t StateFloats(const Args& args) {
    return args.state_size / kBlockState * kResidentBlock;
  }
  static LOPT_DEVICE int64_t PlaceOfState(const Args&, int64_t i) {
    return i / kBlockState * kResidentBlock + i % kBlockState;
  }

  template <class Row>
  static LOPT_DEVICE_INLINE void Bind(const Block& block, const Args& args, const Row& row,
                                      const Replica& replica) {
    float* weights = replica.weights;
    const int steady = Steady(args);
    const int hidden = args.hidden;
    // Theta: each layer's weights [in, out], then its bias.
    const int first_size = (kNormalized + steady + 1) * hidden;
    const int inner_size = (hidden + 1) * hidden;
    const int inner = Inner(args);
    block.ForEach(WeightFloats(args), [&](int64_t packed) {
      const auto i = static_cast<int>(packed);
      const auto unit_or_none = [&](int first, int unit) {
        return unit < hidden ? row(first + unit) : 0.0f;
      };
      if (i < kInputBias) {
        weights[i] = unit_or_none(i / kHidden * hidden, i % kHidden);
      } else if (i < kOutput) {
        weights[i] = unit_or_none((kNormalized + steady) * hidden, i - kInputBias);
      } else if (i < kSteady) {
        const int at = i - kOutput;
        const int outputs = first_size + (args.layers - 1) * inner_size;
        if (i < kOutputBias) {
          weights[i] = at / 2 < hidden ? row(outputs + at) : 0.0f;
        } else {
          weights[i] = i < kOutputBias + 2 ? row(outputs + 2 * hidden + i - kOutputBias) : 0.0f;
        }
      } else if (i < inner) {
        const int at = i - kSteady;
        weights[i] = unit_or_none((kNormalized + at / kHidden) * hidden, at % kHidden);
      } else {
        const int layer = (i - inner) / kInnerSize;
        const int at = (i - inner) % kInnerSize;
        const int in = at / kHidden;  // kHidden: the bias
        const int first = first_size + layer * inner_size;
        weights[i] =
            in < kHidden && in >= hidden
                ? 0.0f
                : unit_or_none(first + (in == kHidden ? hidden : in) * hidden, at % kHidden);
      }
    });
  }

  static LOPT_DEVICE_INLINE void Update(const Block& block, const Args& args,
                                        const DeviceStep& info, const Replica& replica) {
    const MlpLoptStep step(args.options, info.step, info.num_steps);
    FoldSteady(block, args, step, replica);
    for (int n = 0; n < args.tensors; ++n) {
      if (args.tensor[n].size > 0) MeasureTensor(block, args, step, n, replica);
    }
    block.ForEachThread([&](int thread) {
      int n = 0;
      for (int64_t group = thread; group < args.groups; group += block.threads()) {
        while (n + 1 < args.tensors && group >= args.tensor[n + 1].first_group) ++n;
        StepGroup(args, step.exp_mult(), n, group - args.tensor[n].first_group, replica);
      }
    });
  }

 private:
  static LOPT_DEVICE_INLINE float* Momenta(const DeviceTensor& tensor, int64_t element,
                                           const Replica& replica) {
    const int stride = replica.resident ? kResidentBlock : kBlockState;
    return replica.state + (tensor.state / kBlockState + element / kBlock) * stride +
           element % kBlock;
  }

  // The bias of the first layer becomes what the features of the step make of it.
  static LOPT_DEVICE_INLINE void FoldSteady(const Block& block, const Args& args,
                                            const MlpLoptStep& step, const Replica& replica) {
    float* scratch = replica.scratch;
    const float* weights = replica.weights;
    const int steady = Steady(args);
    block.ForEach(steady, [&](int64_t k) {
      constexpr std::array<float, kTimes> scales = MlpLoptNumbers::kTimeScales;
      float feature = 0;
      LOPT_UNROLL
      for (int i = 0; i < kTimes; ++i) {
        if (i == k) feature = std::tanh(step.time() / scales[i] - 1.0f);
      }
      scratch[kFeatures + k] = k < kTimes ? feature : step.progress()[k - kTimes];
    });
    block.ForEach(kHidden, [&](int64_t unit) {
      float sum = weights[kInputBias + unit];
      for (int k = 0; k < steady; ++k) {
        sum += scratch[kFeatures + k] * weights[kSteady + k * kHidden + unit];
      }
      scratch[unit] = sum;
    });
  }

  // Updates the momenta of tensor n; its scales and the factor of its steps go to scratch.
  static LOPT_DEVICE_INLINE void MeasureTensor(const Block& block, const Args& args,
                                               const MlpLoptStep& step, int n,
                                               const Replica& replica) {
    const DeviceTensor& tensor = args.tensor[n];
    const int threads = block.threads();
    float* partial = replica.scratch + PartialSums(args);
    const float* g = replica.gradient + tensor.offset;
    const float* p = replica.params + tensor.offset;
    block.ForEachThread([&](int thread) {
      constexpr std::array<float, kMomenta> decays = MlpLoptNumbers::kDecays;
      float sums[kNormalized] = {};
      for (int64_t i = thread; i < tensor.size; i += threads) {
        const float gradient = g[i];
        const float param = p[i];
        float* momenta = Momenta(tensor, i, replica);
        sums[0] += gradient * gradient;
        sums[1] += param * param;
        LOPT_UNROLL
        for (int k = 0; k < kMomenta; ++k) {
          const float momentum = decays[k] * momenta[k * kBlock] + (1.0f - decays[k]) * gradient;
          momenta[k * kBlock] = momentum;
          sums[2 + k] += momentum * momentum;
        }
      }
      LOPT_UNROLL
      for (int k = 0; k < kNormalized; ++k) partial[k * threads + thread] = sums[k];
    });
    float* scales = replica.scratch + kScales + n * kTensorScales;
    SumOverThreads(block, kNormalized, partial, scales);
    block.Once([&] {
      const float multiplier = step.Multiplier(tensor.size, scales);
      for (int k = 0; k < kNormalized; ++k) {
        const float mean = scales[k] / static_cast<float>(tensor.size);
        scales[k] = 1.0f / std::sqrt(step.normalizer_epsilon() + mean);
      }
      scales[kNormalized] = multiplier;
    });
  }

  // sums[i][j] += x[i] times weights[j], for four units j.
  static LOPT_DEVICE_INLINE void AddUnits(const float (&x)[kGroup], const float* weights,
                                          float (&sums)[kGroup][4]) {
    const Float4 w = *reinterpret_cast<const Float4*>(weights);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] += x[i] * w.at[j];
    }
  }

  static LOPT_DEVICE_INLINE void StartUnits(const float* bias, float (&sums)[kGroup][4]) {
    const Float4 b = *reinterpret_cast<const Float4*>(bias);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = b.at[j];
    }
  }

  // Four units of a layer that sees the units h of the layer before.
  static LOPT_DEVICE_INLINE void NextUnits(const float (&h)[kHidden][kGroup], const float* layer,
                                           int unit, float (&sums)[kGroup][4]) {
    StartUnits(layer + kHidden * kHidden + unit, sums);
    LOPT_UNROLL
    for (int k = 0; k < kHidden; ++k) AddUnits(h[k], layer + k * kHidden + unit, sums);
  }

  // max(x, 0) that passes NaN on.
  static LOPT_DEVICE float Relu(float x) { return x < 0.0f ? 0.0f : x; }

  // Steps a group of a tensor's parameters.
  static LOPT_DEVICE_INLINE void StepGroup(const Args& args, float exp_mult, int n, int64_t group,
                                           const Replica& replica) {
    const DeviceTensor& tensor = args.tensor[n];
    const int64_t first = group * kGroup;
    const int count = tensor.size - first < kGroup ? static_cast<int>(tensor.size - first) : kGroup;
    const float* scratch = replica.scratch;
    const float* scales = scratch + kScales + n * kTensorScales;
    const float* weights = replica.weights;
    const float* g = replica.gradient + tensor.offset + first;
    float* p = replica.params + tensor.offset + first;
    // A group is inside a block of the state, where places behind the last element are zeros.
    const float* momenta = Momenta(tensor, first, replica);

    float x[kNormalized][kGroup];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      x[0][i] = i < count ? g[i] * scales[0] : 0.0f;
      x[1][i] = i < count ? p[i] * scales[1] : 0.0f;
      LOPT_UNROLL
      for (int k = 0; k < kMomenta; ++k) x[2 + k][i] = momenta[k * kBlock + i] * scales[2 + k];
    }
    float h[kHidden][kGroup];
    LOPT_UNROLL
    for (int unit = 0; unit < kHidden; unit += 4) {
      float sums[kGroup][4];
      StartUnits(scratch + unit, sums);
      LOPT_UNROLL
      for (int k = 0; k < kNormalized; ++k) {
        AddUnits(x[k], weights + kInput + k * kHidden + unit, sums);
      }
      Activate(sums, unit, h);
    }

    const float* layer = weights + Inner(args);
    LOPT_ROLLED
    for (int l = 0; l + 2 < args.layers; ++l, layer += kInnerSize) {
      float next[kHidden][kGroup];
      LOPT_UNROLL
      for (int unit = 0; unit < kHidden; unit += 4) {
        float sums[kGroup][4];
        NextUnits(h, layer, unit, sums);
        Activate(sums, unit, next);
      }
      LOPT_UNROLL
      for (int unit = 0; unit < kHidden; ++unit) {
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) h[unit][i] = next[unit][i];
      }
    }

    float outputs[kGroup][2];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      outputs[i][0] = weights[kOutputBias];
      outputs[i][1] = weights[kOutputBias + 1];
    }
    if (args.layers == 1) {
      LOPT_UNROLL
      for (int unit = 0; unit < kHidden; ++unit) {
        AddOutputs(h[unit], weights + kOutput + 2 * unit, outputs);
      }
    } else {
      // The last layer's units go straight into the outputs.
      LOPT_ROLLED
      for (int unit = 0; unit < kHidden; unit += 4) {
        float sums[kGroup][4];
        NextUnits(h, layer, unit, sums);
        LOPT_UNROLL
        for (int j = 0; j < 4; ++j) {
          float units[kGroup];
          LOPT_UNROLL
          for (int i = 0; i < kGroup; ++i) units[i] = Relu(sums[i][j]);
          AddOutputs(units, weights + kOutput + 2 * (unit + j), outputs);
        }
      }
    }
    const float multiplier = scales[kNormalized];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) p[i] -= outputs[i][0] * std::exp(outputs[i][1] * exp_mult) * multiplier;
    }
  }

  static LOPT_DEVICE_INLINE void Activate(const float (&sums)[kGroup][4], int unit,
                                          float (&h)[kHidden][kGroup]) {
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) h[unit + j][i] = Relu(sums[i][j]);
    }
  }

  static LOPT_DEVICE_INLINE void AddOutputs(const float (&units)[kGroup], const float* weights,
                                            float (&outputs)[kGroup][2]) {
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      outputs[i][0] += units[i] * weights[0];
      outputs[i][1] += units[i] * weights[1];
    }
  }
};

}  // namespace lopt
