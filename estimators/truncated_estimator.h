#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lopt/base/fields.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

// Options of the estimators that unroll a window of every task and carry the tasks on.
struct TruncatedOptions {
  int64_t num_tasks = 8;      // N antithetic pairs
  int64_t trunc_length = 10;  // W inner steps a window
  double std = 0.01;          // of the perturbations
  // Replaces a pair's mean loss difference over the window by its sign times this.
  std::optional<double> sign_delta_loss_scalar = {};
  // Inner steps, rounded up to whole windows, that InitWorkerState runs as any others, without
  // handing out their estimates.
  int64_t burn_in = 0;
  Directions directions = Directions::kIndependent;  // of the perturbations of a window
  void Visit(FieldVisitor& v);
};

// What these estimators share. State: the unroll state of their tasks, `unroll/`, and what the
// estimator adds.
class TruncatedEstimator : public GradientEstimator {
 protected:
  // `type` as configs name it.
  TruncatedEstimator(const char* type, std::shared_ptr<const InnerProblem> problem,
                     const TruncatedOptions& options);

  // What is differentiated.
  const InnerProblem& problem() const { return *problem_; }
  // As given, checked.
  const TruncatedOptions& options() const { return options_; }
  // Moves `unroll/` out of a state. Throws Error unless `others` arrays are beside it.
  UnrollState TakeUnroll(EstimatorState* state, size_t others) const;

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const final;
  EstimatorState DoOutlineState(const WorkerWeights& weights, Key key) const final;
  // The state before the first window, of tasks that FoldIn(key, n) names. `lasting` is for draws
  // that outlive a window.
  virtual EstimatorState Begin(const WorkerWeights& weights, Key key, Key lasting) const = 0;

  const char* type_;
  std::shared_ptr<const InnerProblem> problem_;
  TruncatedOptions options_;
};

}  // namespace lopt
