#include "lopt/estimators/truncated_estimator.h"

#include <utility>

#include "lopt/base/error.h"
#include "lopt/estimators/antithetic.h"

namespace lopt {
namespace {

// What the key of a worker's start is folded with, beside the numbers of its tasks.
enum StartDraw : uint64_t { kLastingDraw = uint64_t{1} << 32, kBurnInDraw };

}  // namespace

void TruncatedOptions::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, Between(1, 100000),
          "Tasks, each an antithetic pair of replicas.");
  v.Field("trunc_length", &trunc_length, Between(1, 10000000), "Inner steps of one window.");
  v.Field("std", &std, Above(0), "Standard deviation of the perturbations of theta.");
  v.Field("sign_delta_loss_scalar", &sign_delta_loss_scalar, Above(0),
          "Replaces the loss difference of a pair, the mean over the window, by its sign times "
          "this.");
  v.Field("burn_in", &burn_in, Between(0, 10000000),
          "Inner steps that the tasks make before the first update, rounded up to whole windows; "
          "they are in no account of steps.");
  VisitDirections(v, &directions);
}

TruncatedEstimator::TruncatedEstimator(const char* type,
                                       std::shared_ptr<const InnerProblem> problem,
                                       const TruncatedOptions& options)
    : GradientEstimator(problem->theta_layout()),
      type_(type),
      problem_(std::move(problem)),
      options_(options) {
  RequireDirections(type_, options_.directions, *problem_);
}

UnrollState TruncatedEstimator::TakeUnroll(EstimatorState* state, size_t others) const {
  UnrollState unroll = state->Take("unroll/");
  Require(state->size() == others,
          "{}: the state is not one of this estimator: {} arrays beside its unroll state, wanted "
          "{}",
          type_, state->size(), others);
  return unroll;
}

EstimatorState TruncatedEstimator::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state = DoOutlineState(weights, key);
  const Key windows = FoldIn(key, kBurnInDraw);
  for (int64_t done = 0; done < options_.burn_in; done += options_.trunc_length) {
    Estimate(weights, FoldIn(windows, static_cast<uint64_t>(done)), &state);
  }
  return state;
}

EstimatorState TruncatedEstimator::DoOutlineState(const WorkerWeights& weights, Key key) const {
  return Begin(weights, key, FoldIn(key, kLastingDraw));
}

}  // namespace lopt
