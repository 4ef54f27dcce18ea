#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/replica_device.h"
#include "lopt/lopt/adafac/adafac_numbers_device.h"
#include "lopt/lopt/mlp/mlp_lopt_step_device.h"
#include "lopt/lopt/network/factored_device.h"
#include "lopt/lopt/network/network_device.h"

namespace lopt {

// One tensor of the params, and where in the state its arrays begin.
struct AdafacDeviceTensor {
  int64_t offset;  // in params
  int64_t size;    // elements
  int64_t momenta;
  int64_t rms;
  int64_t v;  // v_row, or v of a tensor of fewer than two axes
  int64_t v_col;
  bool is_factored;
  DeviceFactored factored;  // where it is
  int64_t tables;           // offset of its FactoredTables among those of all tensors
  int64_t first_group;      // of ElementGroups, counted over all tensors
};

// What the functions below take of an AdafacMLPLOpt.
struct AdafacArgs {
  NetworkSizes network;
  AdafacPlaces at;
  const float* decay_parameters;  // [M + R + F], of the momenta first: AdafacDecayParameters
  float exp_mult;
  float step_mult;
  int tensors;
  const AdafacDeviceTensor* tensor;  // [tensors]
  int64_t groups;                    // of all tensors
  int64_t state_size;                // S
  int64_t table_floats;              // of all tensors
  int64_t most_sums;                 // over an axis at a time
};

// The rule of AdafacMLPLOpt on a device, for networks of at most kHidden units a layer. For each
// tensor, phases update its factored moments, then one all else of its state, adding up the squares
// of its features; in the end one phase runs the network for all parameters, kGroup on a thread,
// which forms the features once more.
template <int kHidden>
struct AdafacMlpLoptDevice {
  using Network = NetworkDevice<kHidden, 2>;
  static constexpr int kMostHidden = kHidden;
  static constexpr int kGroup = Network::kGroup;
  using Group = ElementGroup<kGroup>;
  static constexpr int kTimes = MlpLoptNumbers::kTimes;

  using Args = AdafacArgs;

  // Weights: the network's, then the decays.
  static LOPT_DEVICE int Decays(const Args& args) { return Network::WeightFloats(args.network); }
  static LOPT_DEVICE int64_t WeightFloats(const Args& args) {
    return Decays(args) + args.at.m + args.at.r + args.at.f;
  }

  // Scratch: the bias of the first layer with the features of the step, these features, for each
  // tensor the scales of its features, the tables of all tensors, and partial sums.
  static constexpr int kFeatures = kHidden;
  static constexpr int kScales = kFeatures + 12;
  static_assert(kTimes <= 12);
  static LOPT_DEVICE int64_t Tables(const Args& args) {
    return kScales + int64_t{args.tensors} * args.at.count;
  }
  static LOPT_DEVICE int64_t Partial(const Args& args) { return Tables(args) + args.table_floats; }
  static int64_t ScratchFloats(const Args& args, int threads) {
    const int64_t features = int64_t{args.at.count} * threads;
    const int64_t sums = SumsOverAxis::Floats(args.most_sums, threads);
    return Partial(args) + (features > sums ? features : sums);
  }
  static int64_t StateFloats(const Args& args) { return args.state_size; }
  static LOPT_DEVICE int64_t PlaceOfState(const Args&, int64_t i) { return i; }

  template <class Row>
  static LOPT_DEVICE_INLINE void Bind(const Block& block, const Args& args, const Row& row,
                                      const Replica& replica) {
    Network::Pack(block, args.network, row, replica.weights);
    // Theta ends with the offsets of the decays.
    float* decays = replica.weights + Decays(args);
    block.ForEach(args.at.m + args.at.r + args.at.f, [&](int64_t i) {
      const float offset = row(args.network.Total() + i);
      float decay = 1.0f - std::exp(10.0f * (args.decay_parameters[i] + offset));
      if (i >= args.at.m) decay = decay < 0.0f ? 0.0f : decay > 1.0f ? 1.0f : decay;
      decays[i] = decay;
    });
  }

  static LOPT_DEVICE_INLINE void Update(const Block& block, const Args& args,
                                        const DeviceStep& info, const Replica& replica) {
    const auto time = static_cast<float>(info.step);
    Network::FoldSteady(
        block, args.network, replica.weights, [&](int k) { return TimeFeature(time, k); },
        replica.scratch + kFeatures, replica.scratch);
    for (int n = 0; n < args.tensors; ++n) {
      if (args.tensor[n].size > 0) MeasureTensor(block, args, args.tensor[n], n, replica);
    }
    ForEachGroup(block, args.tensor, args.tensors, args.groups,
                 [&](int n, int64_t group) { StepGroup(args, args.tensor[n], n, group, replica); });
  }

 private:
  static LOPT_DEVICE float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

  static LOPT_DEVICE FactoredTables TablesOf(const Args& args, const AdafacDeviceTensor& tensor,
                                             const Replica& replica) {
    return {tensor.factored, args.at.f, replica.scratch + Tables(args) + tensor.tables};
  }

  // Updates the state of tensor n; the scales of its features go to scratch.
  static LOPT_DEVICE_INLINE void MeasureTensor(const Block& block, const Args& args,
                                               const AdafacDeviceTensor& tensor, int n,
                                               const Replica& replica) {
    float* partial = replica.scratch + Partial(args);
    const float* g = replica.gradient + tensor.offset;
    if (tensor.is_factored) {
      const float* decays = replica.weights + Decays(args) + args.at.m + args.at.r;
      UpdateFactored(
          block, tensor.factored, args.at.f, [&](int k) { return decays[k]; },
          [&](int64_t i) { return g[i]; }, AdafacNumbers::kMomentEpsilon, replica.state + tensor.v,
          replica.state + tensor.v_col, TablesOf(args, tensor, replica), partial);
    }
    NormalizingScales<kGroup>(
        block, args.at.count, tensor.size, AdafacNumbers::kNormalizerEpsilon,
        [&](const Group& group) { UpdateState(args, tensor, group, replica); },
        [&](const Group& group, const auto& add) {
          VisitFeatures(args, tensor, group, replica, add);
        },
        partial, replica.scratch + kScales + int64_t{n} * args.at.count);
  }

  // All state of a group's elements but factored moments.
  static LOPT_DEVICE_INLINE void UpdateState(const Args& args, const AdafacDeviceTensor& tensor,
                                             const Group& group, const Replica& replica) {
    const float* decays = replica.weights + Decays(args);
    const int moments = tensor.is_factored ? 0 : args.at.f;
    for (int i = 0; i < group.count(); ++i) {
      const float g = replica.gradient[tensor.offset + group[i]];
      const auto average = [&](int64_t array, int k, float decay, float x) {
        float* at = replica.state + array + k * tensor.size + group[i];
        *at = decay * *at + (1.0f - decay) * x;
      };
      const float square = BoundedSquare(g);
      for (int k = 0; k < args.at.m; ++k) average(tensor.momenta, k, decays[k], g);
      for (int k = 0; k < args.at.r; ++k) {
        average(tensor.rms, k, decays[args.at.m + k], square);
      }
      for (int k = 0; k < moments; ++k) {
        average(tensor.v, k, decays[args.at.m + args.at.r + k], square + kFactoredSquareFloor);
      }
    }
  }

  // visit(k, x) for each feature k of a group's elements before it is normalised, in any order.
  template <class Visit>
  static LOPT_DEVICE_INLINE void VisitFeatures(const Args& args, const AdafacDeviceTensor& tensor,
                                               const Group& group, const Replica& replica,
                                               const Visit& visit) {
    const AdafacPlaces& at = args.at;
    const FactoredTables tables = TablesOf(args, tensor, replica);
    const bool factored = tensor.is_factored;
    // How many moments there are by rows and by columns, and which are the elements'; without two
    // axes their own.
    const int64_t rows = factored ? tensor.factored.rows : tensor.size;
    const int64_t cols = factored ? tensor.factored.cols : tensor.size;
    float g[kGroup];
    float x[kGroup];
    int64_t row[kGroup];
    int64_t col[kGroup];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      g[i] = replica.gradient[tensor.offset + group[i]];
      x[i] = replica.params[tensor.offset + group[i]];
      row[i] = col[i] = group[i];
      if (factored) {
        const DeviceFactored::Place place = tensor.factored.PlaceOf(static_cast<int>(group[i]));
        row[i] = place.row;
        col[i] = place.col;
      }
    }
    visit(0, g);
    visit(1, x);
    float q[kGroup] = {};
    LOPT_ROLLED
    for (int k = 0; k < at.m; ++k) {
      // One mean of squares serves all momenta, or each has its own.
      if (k < at.r) {
        const float* rms = replica.state + tensor.rms + k * tensor.size;
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) x[i] = rms[group[i]];
        visit(at.at_r + k, x);
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) q[i] = Rsqrt(x[i] + AdafacNumbers::kRmsEpsilon);
        visit(at.at_q + k, q);
      }
      const float* momenta = replica.state + tensor.momenta + k * tensor.size;
      float m[kGroup];
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) m[i] = momenta[group[i]];
      visit(at.at_m + k, m);
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) x[i] = m[i] * q[i];
      visit(at.at_mq + k, x);

      // The second moments by rows, then those by columns, and what divides g and m by their roots.
      const float* v_row = replica.state + tensor.v + k * rows;
      const float* v_col = factored ? replica.state + tensor.v_col + k * cols : v_row;
      float of_g[kGroup] = {};
      float of_m[kGroup] = {};
      LOPT_ROLLED
      for (int side = 0; side < 2; ++side) {
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) {
          x[i] = side == 0 ? v_row[row[i]] : v_col[col[i]];
        }
        visit(at.at_row + side * at.f + k, x);
        if (factored) {
          LOPT_UNROLL
          for (int i = 0; i < kGroup; ++i) {
            x[i] = side == 0 ? tables.row_roots[k * rows + row[i]]
                             : tables.col_roots[k * cols + col[i]];
          }
        } else {
          LOPT_UNROLL
          for (int i = 0; i < kGroup; ++i) {
            of_g[i] = FlooredRsqrt(x[i] + AdafacNumbers::kVectorEpsilon);
            of_m[i] = Rsqrt(x[i] + AdafacNumbers::kMomentumEpsilon);
            x[i] = Rsqrt(x[i] + AdafacNumbers::kMomentEpsilon);
          }
        }
        visit(at.at_row_rsqrt + side * at.f + k, x);
      }
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        if (factored) {
          of_g[i] = of_m[i] =
              tables.row_factors[k * rows + row[i]] * tables.col_factors[k * cols + col[i]];
        }
        of_g[i] *= g[i];
        of_m[i] *= m[i];
      }
      visit(at.at_fac_g + k, of_g);
      visit(at.at_fac_m + k, of_m);
    }
  }

  // Steps a group of a tensor's parameters.
  static LOPT_DEVICE_INLINE void StepGroup(const Args& args, const AdafacDeviceTensor& tensor,
                                           int n, int64_t number, const Replica& replica) {
    const Group group(tensor.size, number);
    const float* scales = replica.scratch + kScales + int64_t{n} * args.at.count;
    float units[kHidden][kGroup];
    Network::Begin(replica.scratch, units);
    VisitFeatures(args, tensor, group, replica, [&](int k, const float(&x)[kGroup]) {
      Network::AddInput(x, scales[k], replica.weights, k, units);
    });
    float outputs[kGroup][2];
    Network::Finish(args.network, replica.weights, units, outputs);
    float* p = replica.params + tensor.offset;
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (i < group.count()) {
        p[group[i]] -= outputs[i][0] * std::exp(outputs[i][1] * args.exp_mult) * args.step_mult;
      }
    }
  }
};

}  // namespace lopt
