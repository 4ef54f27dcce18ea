#include <cstddef>

#include "lopt/lopt/rules/adam_step_device.h"

namespace lopt {

void AdamStep::Apply(std::span<const float> gradient, std::span<float> params, std::span<float> m,
                     std::span<float> v) const {
  for (size_t i = 0; i < params.size(); ++i) Apply(gradient[i], params[i], m[i], v[i]);
}

}  // namespace lopt
