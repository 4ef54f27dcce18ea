#include "lopt/adam_step.h"

#include <cmath>
#include <cstddef>

namespace lopt {

void AdamStep::CorrectBias(int64_t steps) {
  const auto count = static_cast<double>(steps + 1);
  correction1 = static_cast<float>(1.0 - std::pow(double{beta1}, count));
  correction2 = static_cast<float>(1.0 - std::pow(double{beta2}, count));
}

void AdamStep::Apply(std::span<const float> gradient, std::span<float> params, std::span<float> m,
                     std::span<float> v) const {
  for (size_t i = 0; i < params.size(); ++i) {
    const float g = gradient[i];
    m[i] = beta1 * m[i] + (1.0f - beta1) * g;
    v[i] = beta2 * v[i] + (1.0f - beta2) * (g * g);
    const float direction =
        (m[i] / correction1) / (std::sqrt(v[i] / correction2 + epsilon_root) + epsilon);
    params[i] = kept * params[i] - learning_rate * direction;
  }
}

}  // namespace lopt
