#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/estimators/diagnostic.h"
#include "lopt/estimators/inner_problem.h"

namespace lopt {

// What the learner sends to workers.
struct WorkerWeights {
  Eigen::VectorXf theta;  // [D]
  OuterState outer;       // when in the run they are

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("outer_step", outer.outer_step);
    visit("theta", theta);
  }
};

// Inner steps of one estimate, both of a pair counted.
struct StepCounts {
  int64_t inner_steps = 0;     // of all replicas
  int64_t non_finite = 0;      // of these, with a raw loss that was not finite
  int64_t episodes_ended = 0;  // inside the window

  // Adds up.
  StepCounts& operator+=(const StepCounts& other);
  bool operator==(const StepCounts&) const = default;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("inner_steps", inner_steps);
    visit("non_finite", non_finite);
    visit("episodes_ended", episodes_ended);
  }
};

// What one window gave.
struct GradientEstimate {
  Eigen::VectorXf gradient;  // [D], of the mean meta-loss
  double mean_loss = 0;  // over tasks, steps and both replicas of a pair; NaN if no step had a loss
                         // that can be used
  StepCounts counts;     // of the window
  Diagnostics metrics;   // empty for estimators that have none
};

// Everything of an estimator that lives between two windows of one logical worker.
using EstimatorState = NamedArrays;

// Estimates d(meta-loss)/d(theta). Immutable, thread-safe; its state is passed in. The same
// weights, key and state give the same bits.
class GradientEstimator {
 public:
  virtual ~GradientEstimator() = default;
  GradientEstimator(const GradientEstimator&) = delete;
  GradientEstimator& operator=(const GradientEstimator&) = delete;

  // D numbers.
  const Layout& theta_layout() const { return theta_layout_; }
  // The state before the first window. Throws Error, as Estimate does, if theta does not have D
  // numbers.
  EstimatorState InitWorkerState(const WorkerWeights& weights, Key key) const;
  // A state with the arrays and shapes of that one, whose numbers mean nothing: no inner step is
  // run.
  EstimatorState OutlineState(const WorkerWeights& weights, Key key) const;
  // One window. `key` must differ from window to window. It is all that an estimate draws from; a
  // key that must last longer belongs into the state. Throws Error if the state is not one of this
  // estimator.
  GradientEstimate Estimate(const WorkerWeights& weights, Key key, EstimatorState* state) const;

 protected:
  // The layout of the theta that it differentiates by.
  explicit GradientEstimator(Layout theta) : theta_layout_(std::move(theta)) {}

 private:
  virtual EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const = 0;
  // Default: DoInitWorkerState, for estimators that make their state without inner steps.
  virtual EstimatorState DoOutlineState(const WorkerWeights& weights, Key key) const;
  virtual GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                                      EstimatorState* state) const = 0;

  Layout theta_layout_;
};

}  // namespace lopt
