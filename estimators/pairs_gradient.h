#pragma once

#include <Eigen/Core>
#include <span>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/persistent_gradient.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

// The gradient that the losses of N antithetic pairs give.
struct PairsGradient {
  Eigen::VectorXf gradient;  // [D]
  double squares = 0;        // sum over the pairs of |the gradient that each gives by itself|^2
  std::vector<double> accumulator_norms = {};  // [N], of `accumulator` as it was; empty without
};

// PersistentGradient of losses [N], added up where the problem's windows run. `accumulator` [N, D]
// is in that memory (InnerProblem::memory); null: no episode ran before the window. Throws Error if
// shapes or memories disagree.
PairsGradient GradientOfPairs(const InnerProblem& problem, const Perturbations& perturbations,
                              const PairsLosses& losses, Array* accumulator);

// The gradient of plain ES, likewise: the sum over the pairs of differences[n] times perturbation n
// by 2 std^2 N (WeightedPerturbations). differences [N].
PairsGradient GradientOfPairs(const InnerProblem& problem, const Perturbations& perturbations,
                              std::span<const double> differences);

}  // namespace lopt
