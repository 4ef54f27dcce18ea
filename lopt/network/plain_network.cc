#include "lopt/lopt/network/plain_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lopt {
namespace {

// max(x, 0) that passes NaN on.
float Relu(float x) { return x < 0.0f ? 0.0f : x; }

}  // namespace

void InitLayer(Key key, int64_t in, std::span<float> weights) {
  TruncatedNormal(key, -2.0f, 2.0f, weights);
  const float scale = 1.0f / std::sqrt(static_cast<float>(in));
  for (float& weight : weights) weight *= scale;
}

PlainNetwork::PlainNetwork(int64_t inputs, int64_t hidden, int64_t hidden_layers, int64_t outputs,
                           std::span<const float> theta)
    : width_(std::max({inputs, hidden, outputs})) {
  const float* next = theta.data();
  for (int64_t l = 0; l <= hidden_layers; ++l) {
    Linear layer;
    layer.in = l == 0 ? inputs : hidden;
    layer.out = l == hidden_layers ? outputs : hidden;
    layer.weights.assign(next, next + layer.in * layer.out);
    next += layer.in * layer.out;
    layer.bias.assign(next, next + layer.out);
    next += layer.out;
    layers_.push_back(std::move(layer));
  }
}

std::span<const float> PlainNetwork::Run(std::span<float> x, std::span<float> y) const {
  for (const Linear& layer : layers_) {
    for (int64_t out = 0; out < layer.out; ++out) {
      float sum = 0;
      for (int64_t in = 0; in < layer.in; ++in) sum += x[in] * layer.weights[in * layer.out + out];
      y[out] = sum + layer.bias[out];
      if (&layer != &layers_.back()) y[out] = Relu(y[out]);
    }
    std::swap(x, y);
  }
  return x.first(layers_.back().out);
}

}  // namespace lopt
