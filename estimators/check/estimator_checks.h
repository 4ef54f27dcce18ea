#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lopt/base/check.h"
#include "lopt/estimators/gradient_estimator.h"

namespace lopt::checks {

// A gradient estimator of a problem that does not diverge, and what only its maker knows of it.
struct EstimatorUnderCheck {
  std::shared_ptr<const GradientEstimator> estimator;
  WorkerWeights weights;
  // Inner steps of one window, both of a pair counted; 0: not a fixed number.
  int64_t inner_steps = 0;
  // The same with perturbations of another standard deviation; none: it has no perturbations.
  std::function<std::shared_ptr<const GradientEstimator>(double std)> with_std = {};
  // Of other types or tasks, whose states are to be refused.
  std::vector<std::shared_ptr<const GradientEstimator>> others = {};
};

// What every GradientEstimator promises (estimators/gradient_estimator.h). Whether a gradient is
// the right one is not among it: what is right differs, so it takes a problem whose answer is known
// (tests/estimators_known_gradients_test.cc).
const std::vector<Check<EstimatorUnderCheck>>& EstimatorChecks();

}  // namespace lopt::checks
