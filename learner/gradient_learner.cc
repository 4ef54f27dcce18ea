#include "lopt/learner/gradient_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/finite.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/frozen.h"
#include "lopt/learner/mean.h"

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
    const PartialSum& partial = gradients[i].partial;
    if (gradients[i].gradient.allFinite() && partial.sum.allFinite()) continue;
    for (size_t n = 0; n < std::max<size_t>(1, static_cast<size_t>(partial.gradients)); ++n) {
      found.push_back(workers.empty() ? static_cast<int64_t>(i + n) : workers[i + n]);
    }
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

// Of one part of all workers' gradients.
struct Rows {
  std::vector<Addend> addends = {};
  std::vector<double> weights = {};  // as the addends, if there are any
  int64_t gradients = 0;             // in the addends

  // The mean of the gradients, of `size` numbers each.
  Eigen::VectorXd Mean(GradientSum order, int64_t size) const {
    return AddUp(order, addends, size, weights) / static_cast<double>(gradients);
  }
};

// The rows of the parts part_of(gradient); weights and workers as UpdateWeighted has them. `name`
// begins a message about gradient i's.
template <class PartOf, class Name>
Rows RowsOf(std::span<const AggregatedGradient> gradients, std::span<const double> weights,
            std::span<const int64_t> workers, GradientSum order, int64_t size, PartOf&& part_of,
            Name&& name) {
  Rows rows;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& part = part_of(gradients[i]);
    const bool is_sum = part.partial.gradients > 0;
    if (part.partial.gradients > std::ssize(gradients) - static_cast<int64_t>(i)) {
      Fail("{} is the sum of {} gradients, {} workers follow", name(i), part.partial.gradients,
           gradients.size() - i - 1);
    }
    if (is_sum && order != GradientSum::kTree) {
      Fail("{} is a sum of {} gradients, gradients are added up in order", name(i),
           part.partial.gradients);
    }
    if (!is_sum && part.gradient.size() == 0) continue;
    const int64_t numbers = is_sum ? part.partial.sum.size() : part.gradient.size();
    if (numbers != size) Fail("{} has {} numbers, theta has {}", name(i), numbers, size);
    Addend& addend = rows.addends.emplace_back();
    addend.first = workers.empty() ? static_cast<int64_t>(i) : workers[i];
    if (is_sum) {
      addend.row = AsSpan(part.partial.sum);
    } else {
      addend.row = AsSpan(part.gradient);
    }
    if (!weights.empty()) rows.weights.push_back(weights[i]);
    rows.gradients += is_sum ? part.partial.gradients : 1;
  }
  return rows;
}

}  // namespace

GradientLearner::GradientLearner(std::shared_ptr<const LearnedOptimizer> optimizer,
                                 const Config& theta_opt, const GradientLearnerOptions& options)
    : optimizer_(std::move(optimizer)),
      theta_opt_(theta_opt, optimizer_->theta_layout()),
      policy_(options.non_finite_gradient),
      sum_(options.sum),
      weighting_(options.weighting),
      frozen_(FrozenTensors(optimizer_->theta_layout(), options.frozen)) {}

LearnerState GradientLearner::Init(Key key) const { return Init(optimizer_->InitTheta(key)); }

LearnerState GradientLearner::Init(Eigen::VectorXf theta) const {
  const int64_t size = optimizer_->theta_layout().size();
  Require(theta.size() == size, "GradientLearner: theta has {} numbers, the optimizer needs {}",
          theta.size(), size);
  RequireFiniteWeights(optimizer_->theta_layout(), AsSpan(theta),
                       "GradientLearner: wanted a theta of finite numbers");
  LearnerState state;
  state.theta = std::move(theta);
  state.theta_opt = theta_opt_.InitState(AsSpan(state.theta));
  return state;
}

Eigen::VectorXf GradientLearner::EvalTheta(const LearnerState& state) const {
  const std::vector<float> kept = theta_opt_.EvalTheta(AsSpan(state.theta), state.theta_opt);
  Eigen::VectorXf theta = Eigen::Map<const Eigen::VectorXf>(kept.data(), std::ssize(kept));
  for (const LayoutEntry& entry : frozen_) {  // weight decay moves averages, too
    theta.segment(entry.offset, entry.size) = state.theta.segment(entry.offset, entry.size);
  }
  return theta;
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
    std::span<const AggregatedGradient> gradients, std::span<const double> weights,
    std::span<const int64_t> workers) const {
  const int64_t size = optimizer_->theta_layout().size();
  std::vector<EstimatorGradient> means(gradients[0].estimators.size());
  for (size_t e = 0; e < means.size(); ++e) {
    const auto part_of = [e](const AggregatedGradient& g) -> const EstimatorReport& {
      return g.estimators[e];
    };
    const Rows rows = RowsOf(gradients, weights, workers, sum_, size, part_of, [e](size_t i) {
      return fmt::format("GradientLearner: that of estimator {} of gradient {}", e, i);
    });
    if (rows.gradients == 0) continue;
    // All that run it have one weight; it is 0 of others, one of which may have the sum of a tree's
    // node.
    for (const AggregatedGradient& gradient : gradients) {
      means[e].weight = std::max(means[e].weight, part_of(gradient).weight);
    }
    means[e].gradient = rows.Mean(sum_, size);
    ZeroFrozen(&means[e].gradient);
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
  MeanOfNumbers mean_loss;
  for (size_t w = 0; w < gradients.size(); ++w) {
    Require(gradients[w].estimators.size() == gradients[0].estimators.size(),
            "GradientLearner: gradient {} is of {} estimators, gradient 0 of {}", w,
            gradients[w].estimators.size(), gradients[0].estimators.size());
    mean_loss.Add(gradients[w].mean_loss);
  }
  const Rows rows = RowsOf(
      gradients, weights, workers, sum_, state.theta.size(),
      [](const AggregatedGradient& g) -> const AggregatedGradient& { return g; },
      [](size_t i) { return fmt::format("GradientLearner: gradient {}", i); });
  Require(rows.gradients == std::ssize(gradients),
          "GradientLearner: {} of {} workers have sent no gradient, nor one in a sum with others",
          std::ssize(gradients) - rows.gradients, gradients.size());
  NamedArrays norms = state.norms;
  Eigen::VectorXd mean = weighting_ == Weighting::kEqualNorm
                             ? EqualNormMean(MeansByEstimator(gradients, weights, workers), &norms)
                             : rows.Mean(sum_, state.theta.size());
  ZeroFrozen(&mean);
  const Eigen::VectorXf gradient = mean.cast<float>();
  const bool skip = !gradient.allFinite();
  if (skip && policy_ != NonFiniteGradient::kSkip) {
    Fail(
        "the gradient of outer step {} is not finite (worker {}) and non_finite_gradient is "
        "\"abort\"; \"skip\" counts such updates and goes on",
        state.outer_step, NonFiniteWorkers(gradients, workers));
  }

  const double learning_rate = skip ? 0 : theta_opt_.LearningRate(state.theta_opt);
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
    theta_opt_.Update({gradient.data(), static_cast<size_t>(gradient.size())},
                      {state.theta.data(), static_cast<size_t>(state.theta.size())},
                      &state.theta_opt);
    for (const LayoutEntry& entry : frozen_) {  // weight decay moves them, too
      state.theta.segment(entry.offset, entry.size) = before.segment(entry.offset, entry.size);
    }
    state.norms = std::move(norms);
    const std::string bad =
        DescribeNotFinite(optimizer_->theta_layout(), AsSpan(state.theta), "theta/");
    if (!bad.empty()) {
      Fail(
          "the update of outer step {} made weights that are not finite of finite ones and a "
          "finite gradient (learning_rate {}, norm of the gradient {}): {}; a smaller "
          "learning_rate of theta_opt or its clip_by_global_norm keeps them finite",
          state.outer_step, learning_rate, mean.norm(), bad);
    }
  }
  ++state.outer_step;
  return state;
}

SingleMachineGradientLearner::SingleMachineGradientLearner(GradientLearner learner,
                                                           Estimators estimators, Options options)
    : learner_(std::move(learner)), estimators_(std::move(estimators)), options_(options) {
  Require(options.workers >= 1, "SingleMachineGradientLearner: workers must be >= 1, got {}",
          options.workers);
  Require(options.windows_per_update >= 1,
          "SingleMachineGradientLearner: windows_per_update must be >= 1, got {}",
          options.windows_per_update);
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
