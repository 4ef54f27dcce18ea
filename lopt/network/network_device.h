#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/lopt/network/mean_squares_device.h"

namespace lopt {

// What the rules of learned optimizers share on a device: the network that steps parameters, and
// which of them a thread steps.

// A network of layers x W + b with ReLU between them. Theta begins with the weights [in, out] and
// the bias of each layer, one layer after the other.
struct NetworkSizes {
  int inputs;   // that differ between parameters
  int steady;   // inputs behind them that are the same for all parameters of a step
  int hidden;   // units of a hidden layer
  int layers;   // hidden layers
  int outputs;  // in theta

  LOPT_DEVICE int FirstLayer() const { return (inputs + steady + 1) * hidden; }
  LOPT_DEVICE int InnerLayer() const { return (hidden + 1) * hidden; }
  LOPT_DEVICE int Outputs() const { return FirstLayer() + (layers - 1) * InnerLayer(); }
  // Numbers of theta.
  LOPT_DEVICE int Total() const { return Outputs() + (hidden + 1) * outputs; }
};

// Networks of at most kWidth units a layer, a multiple of 4, whose first kOutputs <= 4 outputs are
// wanted: units that a network has less are zeros. A thread runs it for kGroup parameters, whose
// units of one layer are in registers, units[unit][parameter].
template <int kWidth, int kOutputs>
struct NetworkDevice {
  static_assert(kWidth % 4 == 0 && kOutputs <= 4);
  // Each weight that is read serves all parameters of a thread, and their units fill at most half
  // of the registers.
  static constexpr int kGroup = kWidth <= 16 ? 4 : kWidth <= 32 ? 2 : 1;

  // Packed weights: every row of units padded to kWidth.
  static constexpr int kOutputBias = kWidth * kOutputs;     // behind [kWidth, kOutputs]
  static constexpr int kBias = kOutputBias + 4;             // [kWidth], of the first layer
  static constexpr int kInputs = kBias + kWidth;            // [inputs + steady, kWidth]
  static constexpr int kInnerSize = (kWidth + 1) * kWidth;  // of another layer: weights, then bias
  static LOPT_DEVICE int Inner(const NetworkSizes& sizes) {
    return kInputs + (sizes.inputs + sizes.steady) * kWidth;
  }
  static LOPT_DEVICE int WeightFloats(const NetworkSizes& sizes) {
    return Inner(sizes) + (sizes.layers - 1) * kInnerSize;
  }

  // Packs theta, of which row(i) is number i.
  template <class Row>
  static LOPT_DEVICE_INLINE void Pack(const Block& block, const NetworkSizes& sizes, const Row& row,
                                      float* weights) {
    const int hidden = sizes.hidden;
    const int inner = Inner(sizes);
    // Where in theta packed number i comes from; nowhere: -1.
    const auto place = [&](int i) {
      if (i < kOutputBias) {
        const int unit = i / kOutputs;
        return unit < hidden ? sizes.Outputs() + unit * sizes.outputs + i % kOutputs : -1;
      }
      if (i < kBias) {
        const int output = i - kOutputBias;
        return output < kOutputs ? sizes.Outputs() + hidden * sizes.outputs + output : -1;
      }
      const int unit = (i - kBias) % kWidth;
      if (unit >= hidden) return -1;
      if (i < kInputs) return (sizes.inputs + sizes.steady) * hidden + unit;
      if (i < inner) return (i - kInputs) / kWidth * hidden + unit;
      const int in = (i - inner) % kInnerSize / kWidth;  // kWidth: the bias
      if (in >= hidden && in < kWidth) return -1;
      return sizes.FirstLayer() + (i - inner) / kInnerSize * sizes.InnerLayer() +
             (in == kWidth ? hidden : in) * hidden + unit;
    };
    block.ForEach(WeightFloats(sizes), [&](int64_t i) {
      const int from = place(static_cast<int>(i));
      weights[i] = from < 0 ? 0.0f : row(from);
    });
  }

  // `bias` [kWidth] becomes what the features of the step, feature(k), make of the first layer's;
  // `features` [steady] is memory for them.
  template <class Feature>
  static LOPT_DEVICE_INLINE void FoldSteady(const Block& block, const NetworkSizes& sizes,
                                            const float* weights, const Feature& feature,
                                            float* features, float* bias) {
    block.ForEach(sizes.steady, [&](int64_t k) { features[k] = feature(static_cast<int>(k)); });
    block.ForEach(kWidth, [&](int64_t unit) {
      float sum = weights[kBias + unit];
      for (int k = 0; k < sizes.steady; ++k) {
        sum += features[k] * weights[kInputs + (sizes.inputs + k) * kWidth + unit];
      }
      bias[unit] = sum;
    });
  }

  // The first layer: begin with its bias, add each of its inputs, times its scale, and Finish.
  static LOPT_DEVICE_INLINE void Begin(const float* bias, float (&units)[kWidth][kGroup]) {
    LOPT_UNROLL
    for (int unit = 0; unit < kWidth; unit += 4) {
      float sums[kGroup][4];
      StartUnits(bias + unit, sums);
      Put(sums, unit, units);
    }
  }
  static LOPT_DEVICE_INLINE void AddInput(const float (&input)[kGroup], float scale,
                                          const float* weights, int number,
                                          float (&units)[kWidth][kGroup]) {
    const float* row = weights + kInputs + number * kWidth;
    float x[kGroup];
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = input[i] * scale;
    LOPT_UNROLL
    for (int unit = 0; unit < kWidth; unit += 4) {
      const Float4 w = *reinterpret_cast<const Float4*>(row + unit);
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) {
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) units[unit + j][i] += x[i] * w.at[j];
      }
    }
  }
  // The outputs from the first layer's sums, which are lost.
  static LOPT_DEVICE_INLINE void Finish(const NetworkSizes& sizes, const float* weights,
                                        float (&units)[kWidth][kGroup],
                                        float (&outputs)[kGroup][kOutputs]) {
    LOPT_UNROLL
    for (int unit = 0; unit < kWidth; ++unit) {
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) units[unit][i] = Relu(units[unit][i]);
    }
    const float* layer = weights + Inner(sizes);
    LOPT_ROLLED
    for (int l = 0; l + 2 < sizes.layers; ++l, layer += kInnerSize) {
      float next[kWidth][kGroup];
      LOPT_UNROLL
      for (int unit = 0; unit < kWidth; unit += 4) {
        float sums[kGroup][4];
        NextUnits(units, layer, unit, sums);
        Put(sums, unit, next);
      }
      LOPT_UNROLL
      for (int unit = 0; unit < kWidth; ++unit) {
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) units[unit][i] = next[unit][i];
      }
    }
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int o = 0; o < kOutputs; ++o) outputs[i][o] = weights[kOutputBias + o];
    }
    if (sizes.layers == 1) {
      LOPT_UNROLL
      for (int unit = 0; unit < kWidth; ++unit) {
        AddOutputs(units[unit], weights + kOutputs * unit, outputs);
      }
      return;
    }
    // The last layer's units go straight into the outputs.
    LOPT_ROLLED
    for (int unit = 0; unit < kWidth; unit += 4) {
      float sums[kGroup][4];
      NextUnits(units, layer, unit, sums);
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) {
        float last[kGroup];
        LOPT_UNROLL
        for (int i = 0; i < kGroup; ++i) last[i] = sums[i][j];
        AddOutputs(last, weights + kOutputs * (unit + j), outputs);
      }
    }
  }

 private:
  // max(x, 0) that passes NaN on.
  static LOPT_DEVICE float Relu(float x) { return x < 0.0f ? 0.0f : x; }

  static LOPT_DEVICE_INLINE void StartUnits(const float* bias, float (&sums)[kGroup][4]) {
    const Float4 b = *reinterpret_cast<const Float4*>(bias);
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = b.at[j];
    }
  }

  // Four units of a layer that sees `units` of the layer before.
  static LOPT_DEVICE_INLINE void NextUnits(const float (&units)[kWidth][kGroup], const float* layer,
                                           int unit, float (&sums)[kGroup][4]) {
    StartUnits(layer + kWidth * kWidth + unit, sums);
    LOPT_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const Float4 w = *reinterpret_cast<const Float4*>(layer + k * kWidth + unit);
      LOPT_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        LOPT_UNROLL
        for (int j = 0; j < 4; ++j) sums[i][j] += units[k][i] * w.at[j];
      }
    }
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = Relu(sums[i][j]);
    }
  }

  static LOPT_DEVICE_INLINE void Put(const float (&sums)[kGroup][4], int unit,
                                     float (&units)[kWidth][kGroup]) {
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int j = 0; j < 4; ++j) units[unit + j][i] = sums[i][j];
    }
  }

  static LOPT_DEVICE_INLINE void AddOutputs(const float (&units)[kGroup], const float* weights,
                                            float (&outputs)[kGroup][kOutputs]) {
    LOPT_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      LOPT_UNROLL
      for (int o = 0; o < kOutputs; ++o) outputs[i][o] += units[i] * weights[o];
    }
  }
};

// A thread steps elements of a tensor that are so far from each other, so that neighbouring threads
// have neighbouring elements.
constexpr int64_t kElementsApart = 32;

// How many groups of at most `most` such elements a tensor of `size` has.
LOPT_DEVICE inline int64_t ElementGroups(int64_t size, int most) {
  const int64_t rest = size % (kElementsApart * most);
  return size / (kElementsApart * most) * kElementsApart +
         (rest < kElementsApart ? rest : kElementsApart);
}

// One of them. Behind its last element it has the first once more.
template <int kMost>
class ElementGroup {
 public:
  LOPT_DEVICE ElementGroup(int64_t size, int64_t group)
      : first_(group / kElementsApart * kElementsApart * kMost + group % kElementsApart) {
    const int64_t left = (size - first_ + kElementsApart - 1) / kElementsApart;
    count_ = left < kMost ? static_cast<int>(left) : kMost;
  }

  LOPT_DEVICE int count() const { return count_; }  // from 1 to kMost
  LOPT_DEVICE int64_t operator[](int i) const {
    return i < count_ ? first_ + i * kElementsApart : first_;
  }

 private:
  int64_t first_;
  int count_;
};

// scales[k] = 1 / sqrt(epsilon + the mean square of feature k over the `size` elements of a
// tensor), k < features: update(group) updates the state of a group's elements, then
// visit(group, add) calls add(k, x) with each of their features, x[i] that of group[i], and does so
// once more where a sum of squares is infinite. `partial` [features, threads] is memory for sums.
template <int kMost, class Update, class Visit>
LOPT_DEVICE_INLINE void NormalizingScales(const Block& block, int features, int64_t size,
                                          float epsilon, const Update& update, const Visit& visit,
                                          float* partial, float* scales) {
  const int threads = block.threads();
  float factor = 1;  // of the features
  LOPT_ROLLED
  for (int pass = 0; pass < 2; ++pass) {
    block.ForEachThread([&](int thread) {
      float* sums = partial + thread;
      for (int k = 0; k < features; ++k) sums[k * threads] = 0;
      const int64_t groups = ElementGroups(size, kMost);
      for (int64_t number = thread; number < groups; number += threads) {
        const ElementGroup<kMost> group(size, number);
        if (pass == 0) update(group);
        visit(group, [&](int k, const float(&x)[kMost]) {
          float sum = sums[k * threads];
          LOPT_UNROLL
          for (int i = 0; i < kMost; ++i) {
            sum += i < group.count() ? (factor * x[i]) * (factor * x[i]) : 0.0f;
          }
          sums[k * threads] = sum;
        });
      }
    });
    if (pass == 1) break;
    SumOverThreads(block, features, partial, scales);
    const bool wide = AnyIsWide(scales, features);
    block.ForEachThread([](int) {});  // all have read the sums before any becomes a scale
    if (!wide) break;
    factor = kShrink;
  }
  block.ForEach(features, [&](int64_t k) {
    const double sum = SumOrUnshrunk(scales[k], partial + k * threads, threads);
    scales[k] = InverseRootMeanSquare(epsilon, sum, size);
  });
}

// A phase: body(n, group) for every group of every tensor, group being counted in tensor n. A
// tensor knows its `first_group`, counted over all.
template <class Tensor, class Body>
LOPT_DEVICE_INLINE void ForEachGroup(const Block& block, const Tensor* tensor, int tensors,
                                     int64_t groups, const Body& body) {
  block.ForEachThread([&](int thread) {
    int n = 0;
    for (int64_t group = thread; group < groups; group += block.threads()) {
      while (n + 1 < tensors && group >= tensor[n + 1].first_group) ++n;
      body(n, group - tensor[n].first_group);
    }
  });
}

}  // namespace lopt
