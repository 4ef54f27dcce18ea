#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tasks/activation.h"
#include "tasks/image_batch.h"

namespace lopt {

// A multilayer perceptron: sizes = {features, hidden layers..., classes}, the activation after each
// layer but the last. Its params are, layer by layer, w [in, out] and b [out], C order.
struct MlpShape {
  std::vector<int64_t> sizes;

  int64_t layers() const { return static_cast<int64_t>(sizes.size()) - 1; }
  int64_t params() const {
    int64_t n = 0;
    for (int64_t l = 0; l < layers(); ++l) n += (sizes[l] + 1) * sizes[l + 1];
    return n;
  }
};

// What to evaluate of a network, and where the gradient goes.
struct MlpEvaluation {
  Activation activation = Activation::kRelu;
  std::span<const float> params;
  ImageBatch batch;
  std::span<float> gradient = {};  // out; empty: not wanted
};

}  // namespace lopt
