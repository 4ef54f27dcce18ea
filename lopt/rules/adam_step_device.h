#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "lopt/base/block_device.h"
#include "lopt/lopt/network/mean_squares_device.h"

namespace lopt {

// v <- beta2 v + (1 - beta2) g^2 and returns g. A gradient beyond kLargestAdamGradient counts as
// that, so that v stays finite.
LOPT_DEVICE inline float AddSquare(float beta2, float g, float& v) {
  g = WithinLimit(g, kLargestAdamGradient);
  v = beta2 * v + (1.0f - beta2) * (g * g);
  return g;
}

// The moments of Adam and its like: m <- beta1 m + (1 - beta1) g, and v with g as AddSquare has
// them. Returns g.
LOPT_DEVICE inline float AddToMoments(float beta1, float beta2, float g, float& m, float& v) {
  g = AddSquare(beta2, g, v);
  m = beta1 * m + (1.0f - beta1) * g;
  return g;
}

// One step of Adam (Kingma and Ba 2015) with weight decay beside the gradient (Loshchilov and
// Hutter 2019), after AddToMoments:
//   p <- kept p - learning_rate (m / correction1) / (sqrt(v / correction2 + epsilon_root) +
//   epsilon)
struct AdamStep {
  float beta1;
  float beta2;
  float epsilon;
  float epsilon_root;
  float learning_rate;
  float kept = 1;         // 1 - learning_rate weight_decay
  float correction1 = 1;  // 1 - beta1^t at the t-th step from 1 on; 1: none
  float correction2 = 1;

  // Sets the corrections for the step after `steps` steps.
  LOPT_DEVICE void CorrectBias(int64_t steps) {
    const auto count = static_cast<double>(steps + 1);
    correction1 = static_cast<float>(1.0 - std::pow(double{beta1}, count));
    correction2 = static_cast<float>(1.0 - std::pow(double{beta2}, count));
  }
  // Of one parameter p.
  LOPT_DEVICE void Apply(float g, float& p, float& m, float& v) const {
    AddToMoments(beta1, beta2, g, m, v);
    const float direction =
        (m / correction1) / (std::sqrt(v / correction2 + epsilon_root) + epsilon);
    p = kept * p - learning_rate * direction;
  }
  void Apply(std::span<const float> gradient, std::span<float> params, std::span<float> m,
             std::span<float> v) const;
};

}  // namespace lopt
