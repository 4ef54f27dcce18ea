#include "lopt/estimators/truncated_es.h"

#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/options.h"
#include "lopt/estimators/antithetic.h"

namespace lopt {

void TruncatedES::Options::Visit(FieldVisitor& v) {
  TruncatedOptions::Visit(v);
  v.Choice("carried", &carried, kCarried,
           "The state that both replicas of a pair start a window from: positive, that of the "
           "positive replica; "
           "mean, that of theta without a perturbation, which costs half as many inner steps "
           "again.");
}

TruncatedES::TruncatedES(std::shared_ptr<const InnerProblem> problem, const Options& options)
    : TruncatedEstimator("TruncatedES", std::move(problem), CheckOptions("TruncatedES", options)),
      carried_(options.carried) {}

EstimatorState TruncatedES::Begin(const WorkerWeights& weights, Key key, Key) const {
  const int64_t num_tasks = options().num_tasks;
  EstimatorState state;
  state.Merge("unroll/", problem().Start({.theta = AsSpan(weights.theta), .rows = num_tasks},
                                         weights.outer, SplitKey(key, num_tasks)));
  return state;
}

GradientEstimate TruncatedES::DoEstimate(const WorkerWeights& weights, Key key,
                                         EstimatorState* state) const {
  const int64_t steps = options().trunc_length;
  AntitheticPairs pairs(problem(), weights, key, options().num_tasks, options().std,
                        options().directions);
  UnrollState carried = TakeUnroll(state, 0);
  UnrollState replicas = Twice(carried);
  const UnrollTrace trace = pairs.Run(steps, &replicas);
  if (carried_ == Carried::kMean) {
    pairs.RunTheta(steps, &carried);
  } else {
    carried = TakeRows(replicas, 0, options().num_tasks);
  }
  state->Merge("unroll/", std::move(carried));
  Eigen::ArrayXd means = PairDifferences(trace).colwise().sum() / static_cast<double>(steps);
  if (options().sign_delta_loss_scalar) {
    means = means.sign() * *options().sign_delta_loss_scalar;
  }
  return pairs.Estimate(AsSpan(means));
}

}  // namespace lopt
