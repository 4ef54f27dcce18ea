#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/key.h"

namespace lopt {

// Initial weights [in, out] of a layer: normal truncated at two standard deviations, times
// 1 / sqrt(in), as haiku's Linear has them.
void InitLayer(Key key, int64_t in, std::span<float> weights);

// The network of a learned optimizer, x W + b layer by layer with ReLU between them, written as its
// definition reads and in float32: what the kernels' networks compute, to rounding.
class PlainNetwork {
 public:
  // Theta begins with the weights [in, out] and the bias [out] of each layer, one layer after the
  // other.
  PlainNetwork(int64_t inputs, int64_t hidden, int64_t hidden_layers, int64_t outputs,
               std::span<const float> theta);

  // Floats that either argument of Run has at least.
  int64_t width() const { return width_; }
  // `x` begins with the inputs; both are overwritten. Returns the outputs, inside one of them.
  std::span<const float> Run(std::span<float> x, std::span<float> y) const;

 private:
  struct Linear {
    int64_t in;
    int64_t out;
    std::vector<float> weights;  // [in, out]
    std::vector<float> bias;
  };

  std::vector<Linear> layers_;
  int64_t width_;
};

}  // namespace lopt
