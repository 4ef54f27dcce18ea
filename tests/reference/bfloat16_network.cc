#include "tests/reference/bfloat16_network.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace lopt {
namespace {

// A result or an operand where denormal numbers count as 0.
float Flushed(float x) { return std::abs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

}  // namespace

float PlainBfloat16(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  if (std::abs(x) < FLT_MIN) return std::copysign(0.0f, x);
  int exponent = 0;
  const double fraction = std::frexp(double{x}, &exponent);  // of eight bits before the point
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

PlainBfloat16Network::PlainBfloat16Network(int64_t inputs, int64_t steady, int64_t hidden,
                                           int64_t layers, std::span<const float> theta, bool fused)
    : inputs_(inputs),
      steady_(steady),
      hidden_(hidden),
      layers_(layers),
      theta_(theta.begin(), theta.end()),
      fused_(fused) {}

std::vector<float> PlainBfloat16Network::Run(std::vector<float> x) const {
  const float* weights = theta_.data();
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const auto inputs = layer == 0 ? inputs_ : hidden_;
    const auto steady = layer == 0 ? steady_ : 0;
    const float* bias = weights + (inputs + steady) * hidden_;
    std::vector<float> y(static_cast<size_t>(hidden_));
    for (int64_t j = 0; j < hidden_; ++j) {
      float sum = Flushed(bias[j]);
      for (int64_t k = inputs; k < inputs + steady; ++k) {
        sum = Flushed(std::fma(x[k], weights[k * hidden_ + j], sum));
      }
      for (int64_t first = 0; first < inputs; first += 32) {
        float halves[2] = {0, 0};
        for (int64_t k = first; k < std::min(inputs, first + 32); ++k) {
          float& half = halves[k % 2];
          half =
              Flushed(std::fma(PlainBfloat16(x[k]), PlainBfloat16(weights[k * hidden_ + j]), half));
        }
        sum = Flushed(sum + Flushed(halves[0] + halves[1]));
      }
      y[j] = sum < 0 ? 0.0f : sum;
    }
    x = y;
    weights = bias + hidden_;
  }
  return {Output(x, 0), Output(x, 1)};
}

float PlainBfloat16Network::Output(const std::vector<float>& x, int64_t which) const {
  const float* weights = theta_.data() + theta_.size() - 2 * (hidden_ + 1);
  float sum = Flushed(weights[2 * hidden_ + which]);
  for (int64_t j = 0; j < hidden_; ++j) {
    const float weight = Flushed(weights[2 * j + which]);
    sum = Flushed(fused_ ? std::fma(Flushed(x[j]), weight, sum) : Flushed(x[j] * weight) + sum);
  }
  return sum;
}

}  // namespace lopt
