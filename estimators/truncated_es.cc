#include "estimators/truncated_es.h"

#include <utility>

#include "base/eigen.h"
#include "base/error.h"
#include "base/options.h"
#include "estimators/antithetic.h"

namespace lopt {

TruncatedES::TruncatedES(std::shared_ptr<const InnerProblem> problem,
                         const TruncatedOptions& options)
    : GradientEstimator(problem->theta_layout()), problem_(std::move(problem)), options_(options) {
  CheckOptions("TruncatedES", options_);
}

EstimatorState TruncatedES::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state;
  state.Merge("unroll/",
              problem_->Start({.theta = AsSpan(weights.theta), .rows = 2 * options_.num_tasks},
                              weights.outer, TwinKeys(key, options_.num_tasks)));
  return state;
}

GradientEstimate TruncatedES::DoEstimate(const WorkerWeights& weights, Key key,
                                         EstimatorState* state) const {
  AntitheticPairs pairs(*problem_, weights, key, options_.num_tasks, options_.std);
  UnrollState unroll = state->Take("unroll/");
  Require(state->size() == 0,
          "TruncatedES: the state is not one of this estimator: {} of its {} arrays are no unroll "
          "state",
          state->size(), state->size() + unroll.size());
  CopyFirstHalf(&unroll);
  const UnrollTrace trace = pairs.Run(options_.trunc_length, &unroll);
  state->Merge("unroll/", std::move(unroll));
  Eigen::ArrayXd means =
      TwinDifferences(trace).colwise().sum() / static_cast<double>(options_.trunc_length);
  if (options_.sign_delta_loss_scalar) means = means.sign() * *options_.sign_delta_loss_scalar;
  return pairs.Estimate(AsSpan(means));
}

}  // namespace lopt
