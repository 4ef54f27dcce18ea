#include "lopt/estimators/full_grad.h"

#include <algorithm>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/task_gradients.h"

namespace lopt {
namespace {

// Of the mean over all usable losses, of the last step alone where `last`.
Eigen::ArrayXXd MeanOfAll(const UnrollTrace& trace, bool last) {
  const int64_t steps = trace.loss.rows();
  Eigen::ArrayXXd weights = trace.loss.isFinite().cast<double>();
  if (last) weights.topRows(steps - 1).setZero();
  return weights / std::max(weights.sum(), 1.0);
}

}  // namespace

void FullGrad::Options::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, Between(1, 100000), "Tasks.");
  v.Choice("loss_type", &loss_type, kLossTypes,
           "What is differentiated: the mean of all losses, or that of the last ones.");
}

FullGrad::FullGrad(std::shared_ptr<const DifferentiableProblem> problem,
                   std::shared_ptr<const TruncationSchedule> schedule, const Options& options)
    : GradientEstimator(problem->problem().theta_layout()),
      problem_(std::move(problem)),
      schedule_(std::move(schedule)),
      options_(CheckOptions("FullGrad", options)) {
  Require(!problem_->problem().EpisodesEnd(),
          "FullGrad: it draws the episodes' length itself, so the inner problem's schedule must be "
          "NeverEndingTruncationSchedule");
  Require(schedule_->EpisodesEnd(),
          "FullGrad: its schedule must give episodes an end; NeverEndingTruncationSchedule does "
          "not");
}

EstimatorState FullGrad::DoInitWorkerState(const WorkerWeights&, Key) const { return {}; }

GradientEstimate FullGrad::DoEstimate(const WorkerWeights& weights, Key key,
                                      EstimatorState* state) const {
  Require(state->size() == 0,
          "FullGrad: the state is not one of this estimator: it has {} arrays, wanted none",
          state->size());
  const int64_t length = schedule_->Length(FoldIn(key, kWindowLengthDraw), weights.outer);
  const ThetaRows theta = {.theta = AsSpan(weights.theta), .rows = options_.num_tasks};
  UnrollState unroll = problem_->problem().Start(
      theta, weights.outer, SplitKey(FoldIn(key, kStartDraw), options_.num_tasks), length);
  const std::vector<Key> keys = SplitKey(FoldIn(key, kUnrollDraw), options_.num_tasks);
  UnrollTrace trace;
  const Eigen::MatrixXd d_theta = problem_->Run(
      {.theta = theta,
       .outer = weights.outer,
       .keys = keys,
       .steps = length,
       .state = &unroll,
       .trace = &trace},
      [&](const UnrollTrace& all) {
        return ThroughNormalizer(problem_->problem(), all,
                                 MeanOfAll(all, options_.loss_type == LossType::kLast));
      });
  return SumOverTasks(trace, d_theta);
}

}  // namespace lopt
