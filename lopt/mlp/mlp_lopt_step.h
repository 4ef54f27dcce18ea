#pragma once

#include "lopt/lopt/mlp/mlp_lopt.h"

namespace lopt {

// What an update's MlpLoptStep takes of the options.
inline MlpLoptStepOptions StepOptionsOf(const MLPLOptOptions& options) {
  return {.exp_mult = options.exp_mult,
          .step_mult = options.step_mult,
          .progress_features = options.progress_features,
          .schedule = options.schedule,
          .relative_step = options.relative_step,
          .relative_to_parameter = options.relative_to_parameter,
          .normalizer_epsilon = options.normalizer_epsilon};
}

}  // namespace lopt
