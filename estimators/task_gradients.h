#pragma once

#include <Eigen/Core>

#include "lopt/estimators/differentiable_problem.h"
#include "lopt/estimators/gradient_estimator.h"

namespace lopt {

// What the estimators that backpropagate share. A loss counts where it is finite; what the task's
// normalizer has cut off counts too, with the slope 0.

// dJ/dloss [K, B] as DifferentiableProblem::LossWeights wants it, from dJ by the normalised losses:
// `weights` [K, B], 0 where a loss is cut off or not usable.
Eigen::ArrayXXd ThroughNormalizer(const LoptProblem& problem, const UnrollTrace& trace,
                                  const Eigen::ArrayXXd& weights);

// What a window gives. d_theta [D, N] are the tasks' parts of the gradient, which add up to it.
GradientEstimate SumOverTasks(const UnrollTrace& trace, const Eigen::MatrixXd& d_theta);

}  // namespace lopt
