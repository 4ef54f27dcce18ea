#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/layers/activation.h"

namespace lopt {

// What comes between a hidden layer's linear map and its activation: nothing, or (x - mean) /
// sqrt(variance + kNormEpsilon) scale + offset, with the mean and the variance of an example's
// units (layer) or of a unit over the batch (batch).
enum class Norm { kNone, kLayer, kBatch };

inline constexpr Named<Norm> kNorms[] = {
    {Norm::kNone, "none"}, {Norm::kLayer, "layer"}, {Norm::kBatch, "batch"}};

// Those of haiku and PyTorch.
constexpr double kNormEpsilon = 1e-5;
// The share of a batch in the running statistics, PyTorch's; haiku calls .9 the decay rate.
constexpr double kNormMomentum = 0.1;

// A multilayer perceptron: sizes = {inputs, hidden layers..., outputs}, norm and activation after
// each layer but the last. Its params are, layer by layer, w [in, out] and b [out], C order, and
// with a norm scale [out] and offset [out]. With Norm::kBatch it has running statistics as well,
// mean [out] and variance [out] of each hidden layer.
struct MlpShape {
  std::vector<int64_t> sizes;
  Norm norm = Norm::kNone;

  int64_t layers() const { return static_cast<int64_t>(sizes.size()) - 1; }
  int64_t params(int64_t layer) const {
    const bool normalized = norm != Norm::kNone && layer + 1 < layers();
    return (sizes[layer] + (normalized ? 3 : 1)) * sizes[layer + 1];
  }
  int64_t params() const {
    int64_t n = 0;
    for (int64_t l = 0; l < layers(); ++l) n += params(l);
    return n;
  }
};

// What the squared error compares. The default is an autoencoder's.
struct MlpTargets {
  int64_t at = 0;       // where a row's targets begin; from 0 on are its inputs
  bool sigmoid = true;  // whether outputs are sigmoids of the last linear layer's
};

// What to evaluate of a network, and where the gradient goes.
struct MlpEvaluation {
  Activation activation = Activation::kRelu;
  std::span<const float> params;
  // With Norm::kBatch. Training takes the statistics of the batch, with the sum of squares divided
  // by the number of examples, and moves these towards them, with the sum divided by one less;
  // else these are taken.
  std::span<float> statistics = {};
  bool train = true;
  ImageBatch batch;
  MlpTargets targets = {};         // of the squared error alone
  std::span<float> gradient = {};  // out; empty: not wanted
  std::span<float> logits = {};    // [examples, classes], out, of classes; empty: not wanted
};

}  // namespace lopt
