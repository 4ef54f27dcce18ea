#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/replica_device.h"
#include "lopt/lopt/celo2/celo2_step_device.h"
#include "lopt/lopt/celo2/newton_schulz_device.h"
#include "lopt/lopt/network/factored_device.h"
#include "lopt/lopt/network/network_device.h"

namespace lopt {

// One tensor of the params, as matrices of its last two axes. Its state begins at `state`: the
// momenta [3, size] and r [size], then v_row [3, rows] and v_col [3, cols] or v [3, size]; or m and
// v of Adam.
struct Celo2DeviceTensor {
  int64_t offset;  // in params
  int64_t size;    // elements
  int64_t state;
  bool learned;  // else Adam's
  bool is_factored;
  int matrices;
  int rows;
  int columns;
  DeviceFactored factored;  // where it is
};

// What the functions below take of a Celo2 or Celo2Base.
struct Celo2Args {
  Celo2StepOptions options;
  bool orthogonal;
  NetworkSizes network;
  int tensors;
  const Celo2DeviceTensor* tensor;  // [tensors]
  int64_t state_size;               // S
  // The most that one tensor needs: floats of its tables, sums over an axis at a time, and scratch
  // floats for Newton-Schulz.
  int64_t table_floats;
  int64_t most_sums;
  int64_t iteration_floats;
};

// The rules of Celo2 and Celo2Base on a device, one tensor after the other and one matrix after the
// other: phases update its second moments, one all else of its state, adding up the squares of its
// features; one runs the network, whose output takes the place of the gradient; it is made
// orthogonal and normalised there and then steps the params.
struct Celo2Device {
  using Network = NetworkDevice<Celo2Numbers::kHidden, 1>;
  static constexpr int kMostHidden = Celo2Numbers::kHidden;
  static constexpr int kGroup = Network::kGroup;
  using Group = ElementGroup<kGroup>;
  static constexpr int kMomenta = Celo2Numbers::kMomenta;

  using Args = Celo2Args;

  static int64_t WeightFloats(const Args& args) { return Network::WeightFloats(args.network); }
  // Scratch: the scales of a matrix' features and of its direction, the tables of a tensor, and
  // memory for sums and for Newton-Schulz.
  static constexpr int kTables = 32;
  static constexpr int kDirection = Celo2Numbers::kFeatures;
  static_assert(kDirection < kTables);
  static int64_t ScratchFloats(const Args& args, int threads) {
    int64_t work = int64_t{Celo2Numbers::kFeatures} * threads;
    const int64_t sums = SumsOverAxis::Floats(args.most_sums, threads);
    if (sums > work) work = sums;
    if (args.iteration_floats > work) work = args.iteration_floats;
    return kTables + args.table_floats + work;
  }
  static int64_t StateFloats(const Args& args) { return args.state_size; }
  static LOPT_DEVICE int64_t PlaceOfState(const Args&, int64_t i) { return i; }

  template <class Row>
  static LOPT_DEVICE_INLINE void Bind(const Block& block, const Args& args, const Row& row,
                                      const Replica& replica) {
    Network::Pack(block, args.network, row, replica.weights);
  }

  static LOPT_DEVICE_INLINE void Update(const Block& block, const Args& args,
                                        const DeviceStep& info, const Replica& replica) {
    const Celo2Rates rates(args.options, info.step, info.num_steps);
    for (int n = 0; n < args.tensors; ++n) {
      const Celo2DeviceTensor& tensor = args.tensor[n];
      if (tensor.size == 0) continue;
      float* p = replica.params + tensor.offset;
      float* g = replica.gradient + tensor.offset;
      float* state = replica.state + tensor.state;
      if (!tensor.learned) {
        block.ForEach(tensor.size, [&](int64_t i) {
          rates.adam.Apply(g[i], p[i], state[i], state[tensor.size + i]);
        });
        continue;
      }
      float* work = replica.scratch + kTables + args.table_floats;
      if (tensor.is_factored) {
        float* v_row = state + (kMomenta + 1) * tensor.size;
        UpdateFactored(
            block, tensor.factored, kMomenta, [](int k) { return Decay(k); },
            [&](int64_t i) { return Clipped(g[i], Celo2Numbers::kGradientClip); },
            Celo2Numbers::kRsqrtEpsilon, v_row, v_row + kMomenta * tensor.factored.rows,
            TablesOf(tensor, replica), work);
      }
      for (int matrix = 0; matrix < tensor.matrices; ++matrix) {
        StepMatrix(block, args, rates, tensor, matrix, replica, work);
      }
    }
  }

 private:
  static LOPT_DEVICE float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

  // NaN stays.
  static LOPT_DEVICE float Clipped(float x, float limit) {
    return x < -limit ? -limit : x > limit ? limit : x;
  }

  static LOPT_DEVICE float Decay(int k) {
    constexpr std::array<float, kMomenta> decays = Celo2Numbers::kDecays;
    constexpr float first = decays[0];
    constexpr float second = decays[1];
    constexpr float third = decays[2];
    return k == 0 ? first : k == 1 ? second : third;
  }

  static LOPT_DEVICE FactoredTables TablesOf(const Celo2DeviceTensor& tensor,
                                             const Replica& replica) {
    return {tensor.factored, kMomenta, replica.scratch + kTables};
  }

  static LOPT_DEVICE_INLINE void StepMatrix(const Block& block, const Args& args,
                                            const Celo2Rates& rates,
                                            const Celo2DeviceTensor& tensor, int matrix,
                                            const Replica& replica, float* work) {
    const int size = tensor.rows * tensor.columns;
    const int64_t first = int64_t{matrix} * size;  // element of the tensor
    float* scales = replica.scratch;
    NormalizingScales<kGroup>(
        block, tensor.is_factored ? Celo2Numbers::kFeatures : Celo2Numbers::kFewFeatures, size,
        Celo2Numbers::kNormalizerEpsilon,
        [&](const Group& group) { UpdateState(tensor, first, group, replica); },
        [&](const Group& group, const auto& add) {
          VisitFeatures(tensor, first, group, replica, add);
        },
        work, scales);
    // The directions; each thread reads the gradient of its elements alone.
    float* x = replica.gradient + tensor.offset + first;
    block.ForEach(ElementGroups(size, kGroup), [&](int64_t number) {
      const Group group(size, number);
      float units[kMostHidden][kGroup];
      Network::Begin(replica.weights + Network::kBias, units);
      VisitFeatures(tensor, first, group, replica, [&](int k, const float(&feature)[kGroup]) {
        Network::AddInput(feature, scales[k], replica.weights, k, units);
      });
      float outputs[kGroup][1];
      Network::Finish(args.network, replica.weights, units, outputs);
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        if (i < group.count()) x[group[i]] = outputs[i][0];
      }
    });
    if (args.orthogonal && tensor.is_factored) {
      NewtonSchulzDevice(tensor.rows, tensor.columns).Run(block, x, work);
    }
    NormalizingScales<1>(
        block, 1, size, Celo2Numbers::kNormalizerEpsilon, [](const ElementGroup<1>&) {},
        [&](const ElementGroup<1>& group, const auto& add) { add(0, {x[group[0]]}); }, work,
        scales + kDirection);
    float* p = replica.params + tensor.offset + first;
    block.ForEach(size, [&](int64_t i) {
      p[i] -= rates.learning_rate * (x[i] * scales[kDirection] + rates.weight_decay * p[i]);
    });
  }

  // All state of a group's elements but factored moments; elements are counted from `first` on.
  static LOPT_DEVICE_INLINE void UpdateState(const Celo2DeviceTensor& tensor, int64_t first,
                                             const Group& group, const Replica& replica) {
    for (int i = 0; i < group.count(); ++i) {
      const int64_t element = first + group[i];
      const float g =
          Clipped(replica.gradient[tensor.offset + element], Celo2Numbers::kGradientClip);
      float* state = replica.state + tensor.state + element;
      const auto average = [&](int array, float decay, float x) {
        float* at = state + array * tensor.size;
        *at = decay * *at + (1.0f - decay) * x;
      };
      LOPT_UNROLL
      for (int k = 0; k < kMomenta; ++k) average(k, Decay(k), g);
      average(kMomenta, Celo2Numbers::kRmsDecay, g * g);
      if (tensor.is_factored) continue;
      LOPT_UNROLL
      for (int k = 0; k < kMomenta; ++k) {
        average(kMomenta + 1 + k, Decay(k), g * g + kFactoredSquareFloor);
      }
    }
  }

  // visit(k, x) for each feature k of a group's elements before it is normalised, in any order.
  template <class Visit>
  static LOPT_DEVICE_INLINE void VisitFeatures(const Celo2DeviceTensor& tensor, int64_t first,
                                               const Group& group, const Replica& replica,
                                               const Visit& visit) {
    // The features' places in theta.
    constexpr int kM = 3;
    constexpr int kR = 6;
    constexpr int kMq = 7;
    constexpr int kQ = 10;
    constexpr int kFacG = 11;
    constexpr int kGq = 14;
    constexpr int kSides = 15;  // row, then col
    constexpr int kRoots = 21;  // of both
    constexpr int kFacM = 27;
    const bool factored = tensor.is_factored;
    const FactoredTables tables = TablesOf(tensor, replica);
    const float* state = replica.state + tensor.state;
    float g[kGroup];
    float x[kGroup];
    float q[kGroup];
    int64_t row[kGroup];
    int64_t col[kGroup];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      const int64_t element = first + group[i];
      g[i] = Clipped(replica.gradient[tensor.offset + element], Celo2Numbers::kGradientClip);
      row[i] = col[i] = element;
      if (factored) {
        const DeviceFactored::Place place = tensor.factored.PlaceOf(static_cast<int>(element));
        row[i] = place.row;
        col[i] = place.col;
      }
    }
    visit(0, g);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = Clipped(g[i], Celo2Numbers::kSmallGradientClip);
    visit(1, x);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = replica.params[tensor.offset + first + group[i]];
    visit(2, x);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = state[kMomenta * tensor.size + first + group[i]];
    visit(kR, x);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) q[i] = Rsqrt(x[i] + Celo2Numbers::kRsqrtEpsilon);
    visit(kQ, q);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = g[i] * q[i];
    visit(kGq, x);
    // Second moments by rows, or of the elements, and by columns.
    const int64_t rows = factored ? tensor.factored.rows : tensor.size;
    const int64_t cols = factored ? tensor.factored.cols : 0;
    LOPT_ROLLED
    for (int k = 0; k < kMomenta; ++k) {
      float m[kGroup];
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) m[i] = state[k * tensor.size + first + group[i]];
      visit(kM + k, m);
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) x[i] = m[i] * q[i];
      visit(kMq + k, x);

      const float* v_row = state + (kMomenta + 1) * tensor.size + k * rows;
      float factor[kGroup];
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        factor[i] =
            factored ? tables.row_factors[k * rows + row[i]] * tables.col_factors[k * cols + col[i]]
                     : FlooredRsqrt(v_row[row[i]] + kFactoredMomentFloor);
        x[i] = g[i] * factor[i];
      }
      visit(kFacG + k, x);
      if (!factored) continue;
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) x[i] = m[i] * factor[i];
      visit(kFacM + k, x);
      const float* v_col = state + (kMomenta + 1) * tensor.size + kMomenta * rows + k * cols;
      LOPT_ROLLED
      for (int side = 0; side < 2; ++side) {
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) x[i] = side == 0 ? v_row[row[i]] : v_col[col[i]];
        visit(kSides + side * kMomenta + k, x);
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) {
          x[i] =
              side == 0 ? tables.row_roots[k * rows + row[i]] : tables.col_roots[k * cols + col[i]];
        }
        visit(kRoots + side * kMomenta + k, x);
      }
    }
  }
};

}  // namespace lopt
