#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/estimators/differentiable_problem.h"
#include "lopt/estimators/gradient_estimator.h"

namespace lopt {

// The keys of a config.
struct TruncatedGradOptions {
  int64_t num_tasks = 8;      // N
  int64_t trunc_length = 20;  // W inner steps a window
  void Visit(FieldVisitor& v);
};

// Truncated backpropagation through time: the gradient of the mean over tasks of each one's mean
// loss in the window, the state that a window starts from being a constant. Exact for that, biased
// for the whole episode. State: the unroll state of the tasks, under theta itself.
class TruncatedGrad : public GradientEstimator {
 public:
  // Throws Error if an option is not valid.
  TruncatedGrad(std::shared_ptr<const DifferentiableProblem> problem,
                const TruncatedGradOptions& options);

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  std::shared_ptr<const DifferentiableProblem> problem_;
  TruncatedGradOptions options_;
};

}  // namespace lopt
