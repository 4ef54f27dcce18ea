#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/fields.h"
#include "estimators/gradient_estimator.h"

namespace lopt {

// Options of the estimators that unroll a window of every task and carry the tasks on.
struct TruncatedOptions {
  int64_t num_tasks = 8;      // N antithetic pairs
  int64_t trunc_length = 10;  // W inner steps a window
  double std = 0.01;          // of the perturbations
  // Replaces a pair's mean loss difference over the window by its sign times this.
  std::optional<double> sign_delta_loss_scalar = {};
  void Visit(FieldVisitor& v);
};

// Persistent evolution strategies: unbiased although windows are shorter than episodes. State: the
// unroll state of both twins and the perturbations each episode has felt, `felt` [N, D].
class TruncatedPES : public GradientEstimator {
 public:
  // Throws Error if an option is not valid.
  TruncatedPES(std::shared_ptr<const InnerProblem> problem, const TruncatedOptions& options);

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  std::shared_ptr<const InnerProblem> problem_;
  TruncatedOptions options_;
};

}  // namespace lopt
