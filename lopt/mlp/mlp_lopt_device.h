#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/replica_device.h"
#include "lopt/lopt/mlp/mlp_lopt_step_device.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/network_device.h"

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
  NetworkSizes network;
  int tensors;
  const DeviceTensor* tensor;  // [tensors]
  int64_t groups;              // of all tensors
  int64_t state_size;          // S
};

// The rule of MLPLOpt on a device, for networks of at most kHidden units a layer. A phase updates a
// tensor's momenta, a few add up the squares of its features; then one phase runs the network for
// all parameters, kGroup neighbours on a thread.
template <int kHidden>
struct MlpLoptDevice {
  using Network = NetworkDevice<kHidden, 2>;
  static constexpr int kMomenta = MlpLoptNumbers::kMomenta;
  static constexpr int kNormalized = MlpLoptNumbers::kNormalized;
  static constexpr int kTimes = MlpLoptNumbers::kTimes;
  static constexpr int kBlock = MlpLoptNumbers::kBlock;
  static constexpr int kMostHidden = kHidden;
  static constexpr int kGroup = Network::kGroup;
  // Floats of a block of the state, and of one of a resident replica's: 16 more, so that
  // neighbouring blocks are in different banks.
  static constexpr int kBlockState = kMomenta * kBlock;
  static constexpr int kResidentBlock = kBlockState + kBlock;

  using Args = MlpLoptArgs;

  static LOPT_DEVICE int64_t WeightFloats(const Args& args) {
    return Network::WeightFloats(args.network);
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
    Network::Pack(block, args.network, row, replica.weights);
  }

  static LOPT_DEVICE_INLINE void Update(const Block& block, const Args& args,
                                        const DeviceStep& info, const Replica& replica) {
    const MlpLoptStep step(args.options, info.step, info.num_steps);
    Network::FoldSteady(
        block, args.network, replica.weights,
        [&](int k) {
          return k < kTimes ? TimeFeature(step.time(), k) : step.progress()[k - kTimes];
        },
        replica.scratch + kFeatures, replica.scratch);
    for (int n = 0; n < args.tensors; ++n) {
      if (args.tensor[n].size > 0) MeasureTensor(block, args, step, n, replica);
    }
    ForEachGroup(block, args.tensor, args.tensors, args.groups, [&](int n, int64_t group) {
      StepGroup(args, step.exp_mult(), n, group, replica);
    });
  }

 private:
  static LOPT_DEVICE_INLINE float* Momenta(const DeviceTensor& tensor, int64_t element,
                                           const Replica& replica) {
    const int stride = replica.resident ? kResidentBlock : kBlockState;
    return replica.state + (tensor.state / kBlockState + element / kBlock) * stride +
           element % kBlock;
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
    const bool wide = AnyIsWide(scales, kNormalized);
    block.ForEachThread([](int) {});  // all have read the sums before any becomes a scale
    if (wide) SumShrunk(block, tensor, replica, partial);
    block.Once([&] {
      double sums[kNormalized];
      for (int k = 0; k < kNormalized; ++k) {
        sums[k] = SumOrUnshrunk(scales[k], partial + k * threads, threads);
      }
      for (int k = 0; k < kNormalized; ++k) {
        scales[k] = InverseRootMeanSquare(step.normalizer_epsilon(), sums[k], tensor.size);
      }
      scales[kNormalized] = step.Multiplier(tensor.size, sums);
    });
  }

  // A phase: what each thread has of the sums of the squares of the shrunk features.
  static LOPT_DEVICE_INLINE void SumShrunk(const Block& block, const DeviceTensor& tensor,
                                           const Replica& replica, float* partial) {
    const int threads = block.threads();
    block.ForEachThread([&](int thread) {
      LOPT_ROLLED
      for (int k = 0; k < kNormalized; ++k) {
        float sum = 0;
        for (int64_t i = thread; i < tensor.size; i += threads) {
          const float feature = k == 0   ? replica.gradient[tensor.offset + i]
                                : k == 1 ? replica.params[tensor.offset + i]
                                         : Momenta(tensor, i, replica)[(k - 2) * kBlock];
          sum += (kShrink * feature) * (kShrink * feature);
        }
        partial[k * threads + thread] = sum;
      }
    });
  }

  // Steps a group of a tensor's parameters.
  static LOPT_DEVICE_INLINE void StepGroup(const Args& args, float exp_mult, int n, int64_t group,
                                           const Replica& replica) {
    const DeviceTensor& tensor = args.tensor[n];
    const int64_t first = group * kGroup;
    const int count = tensor.size - first < kGroup ? static_cast<int>(tensor.size - first) : kGroup;
    const float* scratch = replica.scratch;
    const float* scales = scratch + kScales + n * kTensorScales;
    const float* g = replica.gradient + tensor.offset + first;
    float* p = replica.params + tensor.offset + first;
    // A group is inside a block of the state, where places behind the last element are zeros.
    const float* momenta = Momenta(tensor, first, replica);

    float units[kHidden][kGroup];
    Network::Begin(scratch, units);
    LOPT_UNROLL
    for (int k = 0; k < kNormalized; ++k) {
      float x[kGroup];
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        x[i] = k >= 2 ? momenta[(k - 2) * kBlock + i] : i < count ? (k == 0 ? g[i] : p[i]) : 0.0f;
      }
      Network::AddInput(x, scales[k], replica.weights, k, units);
    }
    float outputs[kGroup][2];
    Network::Finish(args.network, replica.weights, units, outputs);
    const float multiplier = scales[kNormalized];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) p[i] -= outputs[i][0] * std::exp(outputs[i][1] * exp_mult) * multiplier;
    }
  }
};

}  // namespace lopt
