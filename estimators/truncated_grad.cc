#include "lopt/estimators/truncated_grad.h"

#include <algorithm>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/task_gradients.h"

namespace lopt {
namespace {

// Of the mean over tasks of each one's mean over its usable losses.
Eigen::ArrayXXd MeanOfMeans(const UnrollTrace& trace) {
  const auto usable = trace.loss.isFinite().cast<double>();
  const Eigen::ArrayXd counts = usable.colwise().sum().transpose();
  Eigen::ArrayXXd weights(trace.loss.rows(), trace.loss.cols());
  for (int64_t n = 0; n < trace.loss.cols(); ++n) {
    weights.col(n) = 1 / (std::max(counts(n), 1.0) * static_cast<double>(trace.loss.cols()));
  }
  return weights;
}

}  // namespace

void TruncatedGradOptions::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, Between(1, 100000), "Tasks.");
  v.Field("trunc_length", &trunc_length, Between(1, 10000000), "Inner steps of one window.");
}

TruncatedGrad::TruncatedGrad(std::shared_ptr<const DifferentiableProblem> problem,
                             const TruncatedGradOptions& options)
    : GradientEstimator(problem->problem().theta_layout()),
      problem_(std::move(problem)),
      options_(CheckOptions("TruncatedGrad", options)) {}

EstimatorState TruncatedGrad::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state;
  state.Merge("unroll/", problem_->problem().Start(
                             {.theta = AsSpan(weights.theta), .rows = options_.num_tasks},
                             weights.outer, SplitKey(key, options_.num_tasks)));
  return state;
}

GradientEstimate TruncatedGrad::DoEstimate(const WorkerWeights& weights, Key key,
                                           EstimatorState* state) const {
  UnrollState unroll = state->Take("unroll/");
  Require(state->size() == 0,
          "TruncatedGrad: the state is not one of this estimator: {} arrays beside its unroll "
          "state, wanted none",
          state->size());
  const std::vector<Key> keys = SplitKey(FoldIn(key, kUnrollDraw), options_.num_tasks);
  UnrollTrace trace;
  const Eigen::MatrixXd d_theta =
      problem_->Run({.theta = {.theta = AsSpan(weights.theta), .rows = options_.num_tasks},
                     .outer = weights.outer,
                     .keys = keys,
                     .steps = options_.trunc_length,
                     .state = &unroll,
                     .trace = &trace},
                    [&](const UnrollTrace& all) {
                      return ThroughNormalizer(problem_->problem(), all, MeanOfMeans(all));
                    });
  state->Merge("unroll/", std::move(unroll));
  return SumOverTasks(trace, d_theta);
}

}  // namespace lopt
