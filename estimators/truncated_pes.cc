#include "estimators/truncated_pes.h"

#include <utility>

#include "base/eigen.h"
#include "base/options.h"
#include "estimators/antithetic.h"
#include "estimators/diagnostics.h"
#include "estimators/pes.h"

namespace lopt {

void TruncatedOptions::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, Between(1, 100000),
          "Tasks, each an antithetic pair of replicas.");
  v.Field("trunc_length", &trunc_length, Between(1, 10000000), "Inner steps of one window.");
  v.Field("std", &std, Above(0), "Standard deviation of the perturbations of theta.");
  v.Field("sign_delta_loss_scalar", &sign_delta_loss_scalar, Above(0),
          "Replaces the loss difference of a pair, the mean over the window, by its sign times "
          "this.");
}

TruncatedPES::TruncatedPES(std::shared_ptr<const InnerProblem> problem,
                           const TruncatedOptions& options)
    : GradientEstimator(problem->theta_layout()), problem_(std::move(problem)), options_(options) {
  CheckOptions("TruncatedPES", options_);
}

EstimatorState TruncatedPES::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state;
  state.Merge("unroll/",
              problem_->Start({.theta = AsSpan(weights.theta), .rows = 2 * options_.num_tasks},
                              weights.outer, TwinKeys(key, options_.num_tasks)));
  state.Set("felt", Array(DType::kFloat32, {options_.num_tasks, theta_layout().size()}));
  return state;
}

GradientEstimate TruncatedPES::DoEstimate(const WorkerWeights& weights, Key key,
                                          EstimatorState* state) const {
  const int64_t num_tasks = options_.num_tasks;
  const std::span<float> felt =
      state->At("felt", DType::kFloat32, {num_tasks, theta_layout().size()}).As<float>();
  AntitheticPairs pairs(*problem_, weights, key, num_tasks, options_.std);
  UnrollState unroll = state->Take("unroll/");
  const UnrollTrace trace = pairs.Run(options_.trunc_length, &unroll);
  state->Merge("unroll/", std::move(unroll));

  Diagnostics felt_norms;
  WriteFeltNorms(trace, felt, &felt_norms);
  double squares = 0;
  Eigen::VectorXf gradient = PesGradient(trace, pairs.perturbations().Rows(), options_.std, felt,
                                         &squares, options_.sign_delta_loss_scalar);
  GradientEstimate estimate = pairs.Estimate(std::move(gradient), squares);
  estimate.metrics.merge(felt_norms);
  return estimate;
}

}  // namespace lopt
