#include "learner/gradient_learner.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "learner/frozen.h"
#include "learner/mean.h"

namespace lopt {
namespace {

// Means over the workers and sums of counts, estimator by estimator.
std::vector<EstimatorReport> CombineReports(std::span<const AggregatedGradient> gradients) {
  std::vector<EstimatorReport> combined(gradients[0].estimators.size());
  for (size_t e = 0; e < combined.size(); ++e) {
    MeanOfNumbers mean_loss;
    MeanOfNumbers gradient_norm;
    std::map<Diagnostic, MeanOfNumbers> metrics;
    for (const AggregatedGradient& gradient : gradients) {
      const EstimatorReport& report = gradient.estimators[e];
      mean_loss.Add(report.mean_loss);
      gradient_norm.Add(report.gradient_norm);
      combined[e].counts += report.counts;
      for (const auto& [diagnostic, value] : report.metrics) {
        metrics[diagnostic].Add(value);
      }
    }
    combined[e].mean_loss = mean_loss.Get();
    combined[e].gradient_norm = gradient_norm.Get();
    for (const auto& [diagnostic, mean] : metrics) {
      combined[e].metrics[diagnostic] = mean.Get();
    }
  }
  return combined;
}

std::string NonFiniteWorkers(std::span<const AggregatedGradient> gradients,
                             std::span<const int64_t> workers) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].gradient.allFinite()) {
      found.push_back(workers.empty() ? static_cast<int64_t>(i) : workers[i]);
    }
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

GradientLearner::GradientLearner(std::shared_ptr<const LearnedOptimizer> optimizer,
                                 std::shared_ptr<const ThetaOpt> theta_opt,
                                 const GradientLearnerOptions& options)
    : optimizer_(std::move(optimizer)),
      theta_opt_(std::move(theta_opt)),
      policy_(options.non_finite_gradient),
      weighting_(options.weighting),
      frozen_(FrozenTensors(optimizer_->theta_layout(), options.frozen)) {}

LearnerState GradientLearner::Init(Key key) const { return Init(optimizer_->InitTheta(key)); }

LearnerState GradientLearner::Init(Eigen::VectorXf theta) const {
  const int64_t size = optimizer_->theta_layout().size();
  Require(theta.size() == size, "GradientLearner: theta has {} numbers, the optimizer needs {}",
          theta.size(), size);
  LearnerState state;
  state.theta = std::move(theta);
  state.theta_opt = theta_opt_->InitState(size);
  return state;
}

WorkerWeights GradientLearner::GetStateForWorker(const LearnerState& state) const {
  return {.theta = state.theta, .outer = {.outer_step = state.outer_step}};
}

LearnerState GradientLearner::Update(LearnerState state,
                                     std::span<const AggregatedGradient> gradients,
                                     UpdateSummary* summary,
                                     std::span<const int64_t> workers) const {
  for (size_t w = 0; w < gradients.size(); ++w) {
    Require(gradients[w].outer_step == state.outer_step,
            "GradientLearner: gradient {} is of outer step {}, the learner is at {}", w,
            gradients[w].outer_step, state.outer_step);
  }
  return Apply(std::move(state), gradients, {}, summary, workers);
}

LearnerState GradientLearner::UpdateWeighted(LearnerState state,
                                             std::span<const AggregatedGradient> gradients,
                                             std::span<const double> weights,
                                             UpdateSummary* summary,
                                             std::span<const int64_t> workers) const {
  Require(gradients.size() == weights.size(), "GradientLearner: {} gradients with {} weights",
          gradients.size(), weights.size());
  for (size_t w = 0; w < gradients.size(); ++w) {
    Require(gradients[w].outer_step <= state.outer_step,
            "GradientLearner: gradient {} is of outer step {}, the learner is at {}", w,
            gradients[w].outer_step, state.outer_step);
  }
  return Apply(std::move(state), gradients, weights, summary, workers);
}

std::vector<EstimatorGradient> GradientLearner::MeansByEstimator(
    std::span<const AggregatedGradient> gradients, std::span<const double> weights) const {
  std::vector<EstimatorGradient> means(gradients[0].estimators.size());
  for (size_t e = 0; e < means.size(); ++e) {
    auto& [weight, mean] = means[e];
    int64_t count = 0;
    for (size_t w = 0; w < gradients.size(); ++w) {
      const EstimatorReport& report = gradients[w].estimators[e];
      if (report.gradient.size() == 0) continue;
      Require(report.gradient.size() == gradients[w].gradient.size(),
              "GradientLearner: gradient {} has {} numbers, that of its estimator {} has {}", w,
              gradients[w].gradient.size(), e, report.gradient.size());
      if (count++ == 0) mean.setZero(report.gradient.size());
      weight = report.weight;
      mean += (weights.empty() ? 1.0 : weights[w]) * report.gradient.cast<double>();
    }
    if (count == 0) continue;
    mean /= static_cast<double>(count);
    ZeroFrozen(&mean);
  }
  return means;
}

void GradientLearner::ZeroFrozen(Eigen::VectorXd* gradient) const {
  for (const LayoutEntry& entry : frozen_) gradient->segment(entry.offset, entry.size).setZero();
}

// Without weights, each is 1.
LearnerState GradientLearner::Apply(LearnerState state,
                                    std::span<const AggregatedGradient> gradients,
                                    std::span<const double> weights, UpdateSummary* summary,
                                    std::span<const int64_t> workers) const {
  Require(!gradients.empty(), "GradientLearner: no gradient to update with");
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(state.theta.size());
  MeanOfNumbers mean_loss;
  for (size_t w = 0; w < gradients.size(); ++w) {
    const AggregatedGradient& from = gradients[w];
    Require(from.gradient.size() == state.theta.size(),
            "GradientLearner: gradient {} has {} numbers, theta has {}", w, from.gradient.size(),
            state.theta.size());
    Require(from.estimators.size() == gradients[0].estimators.size(),
            "GradientLearner: gradient {} is of {} estimators, gradient 0 of {}", w,
            from.estimators.size(), gradients[0].estimators.size());
    sum += (weights.empty() ? 1.0 : weights[w]) * from.gradient.cast<double>();
    mean_loss.Add(from.mean_loss);
  }
  NamedArrays norms = state.norms;
  Eigen::VectorXd mean = sum / static_cast<double>(gradients.size());
  if (weighting_ == Weighting::kEqualNorm) {
    mean = EqualNormMean(MeansByEstimator(gradients, weights), &norms);
  }
  ZeroFrozen(&mean);
  const Eigen::VectorXf gradient = mean.cast<float>();
  const bool skip = !gradient.allFinite();
  Require(!skip || policy_ == NonFiniteGradient::kSkip,
          "the gradient of outer step {} is not finite (worker {}) and non_finite_gradient is "
          "\"abort\"; \"skip\" counts such updates and goes on",
          state.outer_step, NonFiniteWorkers(gradients, workers));

  const double learning_rate = skip ? 0 : theta_opt_->LearningRate(state.theta_opt);
  if (summary != nullptr) {
    *summary = {.outer_step = state.outer_step,
                .mean_loss = mean_loss.Get(),
                .gradient_norm = mean.norm(),
                .learning_rate = learning_rate,
                .skipped = skip,
                .counts = {},
                .estimators = CombineReports(gradients)};
    for (const AggregatedGradient& from : gradients) {
      summary->counts += from.counts;
    }
  }
  if (skip) {
    ++state.skipped_updates;
  } else {
    const Eigen::VectorXf before = state.theta;
    theta_opt_->Update({gradient.data(), static_cast<size_t>(gradient.size())},
                       {state.theta.data(), static_cast<size_t>(state.theta.size())},
                       &state.theta_opt);
    for (const LayoutEntry& entry : frozen_) {  // weight decay moves them, too
      state.theta.segment(entry.offset, entry.size) = before.segment(entry.offset, entry.size);
    }
    state.norms = std::move(norms);
  }
  ++state.outer_step;
  return state;
}

SingleMachineGradientLearner::SingleMachineGradientLearner(GradientLearner learner,
                                                           Estimators estimators, Options options)
    : learner_(std::move(learner)), estimators_(std::move(estimators)), options_(options) {
  Require(options.workers >= 1, "SingleMachineGradientLearner: workers must be >= 1, got {}",
          options.workers);
}

SingleMachineGradientLearner::State SingleMachineGradientLearner::Init(Key run_key) const {
  return InitWorkers(run_key, learner_.Init(ThetaKey(run_key)));
}

SingleMachineGradientLearner::State SingleMachineGradientLearner::Init(
    Key run_key, Eigen::VectorXf theta) const {
  return InitWorkers(run_key, learner_.Init(std::move(theta)));
}

SingleMachineGradientLearner::State SingleMachineGradientLearner::InitWorkers(
    Key run_key, LearnerState learner) const {
  const WorkerWeights weights = learner_.GetStateForWorker(learner);
  State state{.learner = std::move(learner), .workers = {}};
  state.workers.resize(static_cast<size_t>(options_.workers));
  ParallelFor(options_.workers, [&](int64_t w) {
    state.workers[static_cast<size_t>(w)] =
        InitWorkerState(weights, estimators_, WorkerKey(run_key, w));
  });
  return state;
}

UpdateSummary SingleMachineGradientLearner::Update(Key run_key, State* state) const {
  std::vector<Key> keys;
  for (int64_t w = 0; w < options_.workers; ++w) {
    keys.push_back(WorkerKey(run_key, w));
  }
  const std::vector<AggregatedGradient> gradients =
      ComputeWorkers(learner_.GetStateForWorker(state->learner), estimators_,
                     options_.windows_per_update, keys, state->workers, learner_.weighting());
  UpdateSummary summary;
  state->learner = learner_.Update(std::move(state->learner), gradients, &summary);
  return summary;
}

}  // namespace lopt
