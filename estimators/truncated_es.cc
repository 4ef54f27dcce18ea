#include "estimators/truncated_es.h"

#include <utility>

#include "base/eigen.h"
#include "base/error.h"
#include "estimators/antithetic.h"
#include "estimators/diagnostics.h"

namespace lopt {

TruncatedES::TruncatedES(std::shared_ptr<const InnerProblem> problem,
                         const TruncatedOptions& options)
    : GradientEstimator(problem->theta_layout()), problem_(std::move(problem)), options_(options) {}

EstimatorState TruncatedES::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state;
  state.Merge("unroll/", problem_->Start(options_.num_tasks, weights.outer, key));
  return state;
}

GradientEstimate TruncatedES::DoEstimate(const WorkerWeights& weights, Key key,
                                         EstimatorState* state) const {
  const int64_t pairs = options_.num_tasks;
  const std::vector<float> perturbations = SamplePerturbations(
      FoldIn(key, kPerturbationDraw), pairs, theta_layout().size(), options_.std);
  const UnrollState carried = state->Extract("unroll/");
  Require(carried.size() == state->size(),
          "TruncatedES: the state is not one of this estimator: {} of its {} arrays are no unroll "
          "state",
          state->size() - carried.size(), state->size());
  UnrollState unroll = StackTwice(carried);
  UnrollTrace trace;
  problem_->Run({.theta = AsSpan(weights.theta), .perturbations = perturbations, .rows = 2 * pairs},
                weights.outer, options_.trunc_length, TwinKeys(FoldIn(key, kUnrollDraw), pairs),
                &unroll, &trace);
  state->Merge("unroll/", TakeRows(unroll, 0, pairs));

  const Eigen::ArrayXXd differences = TwinDifferences(trace);
  const Eigen::ArrayXd means =
      differences.colwise().sum() / static_cast<double>(options_.trunc_length);
  GradientEstimate estimate;
  estimate.gradient =
      WeightedPerturbations(AsSpan(means), perturbations, options_.std).cast<float>();
  estimate.counts = CountSteps(trace);
  LossSum loss;
  loss.Add(trace);
  estimate.mean_loss = loss.Mean();
  LossDiagnostics losses;
  losses.Add(trace);
  losses.WriteTo(&estimate.metrics);
  WriteGradientSnr(estimate.gradient,
                   SumOfSquaredGradients(AsSpan(means), perturbations, options_.std), pairs,
                   &estimate.metrics);
  return estimate;
}

}  // namespace lopt
