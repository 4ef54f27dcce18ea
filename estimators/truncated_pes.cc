#include "estimators/truncated_pes.h"

#include <utility>

#include "base/eigen.h"
#include "estimators/antithetic.h"
#include "estimators/diagnostics.h"
#include "estimators/pes.h"

namespace lopt {

void TruncatedOptions::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, AtLeast(1), "Tasks, each an antithetic pair of replicas.");
  v.Field("trunc_length", &trunc_length, AtLeast(1), "Inner steps of one window.");
  v.Field("std", &std, Above(0), "Standard deviation of the perturbations of theta.");
}

TruncatedPES::TruncatedPES(std::shared_ptr<const InnerProblem> problem,
                           const TruncatedOptions& options)
    : GradientEstimator(problem->theta_layout()), problem_(std::move(problem)), options_(options) {}

EstimatorState TruncatedPES::DoInitWorkerState(const WorkerWeights& weights, Key key) const {
  EstimatorState state;
  state.Merge("unroll/", StackTwice(problem_->Start(options_.num_tasks, weights.outer, key)));
  state.Set("felt", Array(DType::kFloat32, {options_.num_tasks, theta_layout().size()}));
  return state;
}

GradientEstimate TruncatedPES::DoEstimate(const WorkerWeights& weights, Key key,
                                          EstimatorState* state) const {
  const int64_t pairs = options_.num_tasks;
  const int64_t dimension = theta_layout().size();
  state->At("felt", DType::kFloat32, {pairs, dimension});

  const std::vector<float> perturbations =
      SamplePerturbations(FoldIn(key, kPerturbationDraw), pairs, dimension, options_.std);
  UnrollState unroll = state->Extract("unroll/");
  UnrollTrace trace;
  problem_->Run({.theta = AsSpan(weights.theta), .perturbations = perturbations, .rows = 2 * pairs},
                weights.outer, options_.trunc_length, TwinKeys(FoldIn(key, kUnrollDraw), pairs),
                &unroll, &trace);
  state->Merge("unroll/", unroll);

  GradientEstimate estimate;
  estimate.counts = CountSteps(trace);
  LossSum loss;
  loss.Add(trace);
  estimate.mean_loss = loss.Mean();
  LossDiagnostics losses;
  losses.Add(trace);
  losses.WriteTo(&estimate.metrics);
  const std::span<float> felt = state->At("felt").As<float>();
  WriteFeltNorms(trace, felt, &estimate.metrics);
  double squares = 0;
  estimate.gradient = PesGradient(trace, perturbations, options_.std, felt, &squares);
  WriteGradientSnr(estimate.gradient, squares, pairs, &estimate.metrics);
  return estimate;
}

}  // namespace lopt
