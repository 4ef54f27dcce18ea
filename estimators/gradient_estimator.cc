#include "lopt/estimators/gradient_estimator.h"

#include "lopt/base/error.h"

namespace lopt {
namespace {

void CheckTheta(const Layout& layout, const WorkerWeights& weights) {
  Require(weights.theta.size() == layout.size(),
          "gradient estimator: theta has {} numbers, wanted {}", weights.theta.size(),
          layout.size());
}

}  // namespace

StepCounts& StepCounts::operator+=(const StepCounts& other) {
  inner_steps += other.inner_steps;
  non_finite += other.non_finite;
  episodes_ended += other.episodes_ended;
  return *this;
}

EstimatorState GradientEstimator::InitWorkerState(const WorkerWeights& weights, Key key) const {
  CheckTheta(theta_layout_, weights);
  return DoInitWorkerState(weights, key);
}

EstimatorState GradientEstimator::OutlineState(const WorkerWeights& weights, Key key) const {
  CheckTheta(theta_layout_, weights);
  return DoOutlineState(weights, key);
}

EstimatorState GradientEstimator::DoOutlineState(const WorkerWeights& weights, Key key) const {
  return DoInitWorkerState(weights, key);
}

GradientEstimate GradientEstimator::Estimate(const WorkerWeights& weights, Key key,
                                             EstimatorState* state) const {
  CheckTheta(theta_layout_, weights);
  return DoEstimate(weights, key, state);
}

}  // namespace lopt
