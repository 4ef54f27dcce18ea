#include "lopt/learner/worker.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/full_es.h"
#include "lopt/learner/mean.h"

namespace lopt {
namespace {

constexpr uint64_t kThetaStream = uint64_t{1} << 32;
constexpr uint64_t kStartPurpose = 0;
constexpr uint64_t kWindowPurpose = 1;

struct EstimatorOutput {
  Eigen::VectorXd gradient;
  EstimatorReport report;
};

Key WindowKey(Key worker_key, int64_t window, size_t estimator) {
  return FoldIn(FoldIn(FoldIn(worker_key, kWindowPurpose), static_cast<uint64_t>(window)),
                estimator);
}

EstimatorOutput RunWindows(const WorkerWeights& weights, const ConfiguredEstimator& configured,
                           int64_t windows, size_t index, int64_t first_window, Key worker_key,
                           EstimatorState* state) {
  EstimatorOutput output;
  output.gradient.setZero(weights.theta.size());
  MeanOfNumbers mean_loss;
  std::map<Diagnostic, MeanOfNumbers> metrics;
  for (int64_t i = 0; i < windows; ++i) {
    const Key key = WindowKey(worker_key, first_window + i, index);
    const GradientEstimate estimate = configured.estimator->Estimate(weights, key, state);
    output.gradient += estimate.gradient.cast<double>();
    mean_loss.Add(estimate.mean_loss);
    output.report.counts += estimate.counts;
    for (const auto& [diagnostic, value] : estimate.metrics) {
      metrics[diagnostic].Add(value);
    }
  }
  output.gradient /= static_cast<double>(windows);
  output.report.mean_loss = mean_loss.Get();
  output.report.gradient_norm = output.gradient.norm();
  for (const auto& [diagnostic, mean] : metrics) {
    output.report.metrics[diagnostic] = mean.Get();
  }
  return output;
}

// Throws Error unless there is an estimator, all are for theta's size, no weight is negative and
// one is positive.
void CheckEstimators(const Estimators& estimators, int64_t theta_size) {
  Require(!estimators.empty(), "a worker needs at least one estimator");
  double sum = 0;
  for (size_t e = 0; e < estimators.size(); ++e) {
    if (estimators[e] == nullptr) {
      continue;
    }
    const ConfiguredEstimator& configured = *estimators[e];
    Require(configured.weight >= 0 && std::isfinite(configured.weight),
            "estimator {} has weight {}; a weight is a number >= 0", EstimatorName(estimators, e),
            configured.weight);
    Require(configured.estimator->theta_layout().size() == theta_size,
            "estimator {} is for a theta of {} numbers, got {}", EstimatorName(estimators, e),
            configured.estimator->theta_layout().size(), theta_size);
    sum += configured.weight;
  }
  Require(sum > 0, "all estimators have weight 0");
}

// What `make` gives of each estimator.
WorkerState StateOf(const Estimators& estimators, const WorkerWeights& weights, Key worker_key,
                    EstimatorState (GradientEstimator::*make)(const WorkerWeights&, Key) const) {
  CheckEstimators(estimators, weights.theta.size());

  WorkerState state;
  state.estimators.resize(estimators.size());
  const Key start = FoldIn(worker_key, kStartPurpose);
  ParallelFor(static_cast<int64_t>(estimators.size()), [&](int64_t e) {
    const auto index = static_cast<size_t>(e);
    if (estimators[index] != nullptr) {
      const GradientEstimator& estimator = *estimators[index]->estimator;
      state.estimators[index] = (estimator.*make)(weights, FoldIn(start, index));
    }
  });
  return state;
}

}  // namespace

std::string EstimatorName(const Estimators& estimators, size_t index) {
  return fmt::format("{}_{}", index, estimators.at(index)->task);
}

Key ThetaKey(Key run_key) { return FoldIn(run_key, kThetaStream); }

Key WorkerKey(Key run_key, int64_t worker) {
  return FoldIn(run_key, static_cast<uint64_t>(worker));
}

WorkerState InitWorkerState(const WorkerWeights& weights, const Estimators& estimators,
                            Key worker_key) {
  return StateOf(estimators, weights, worker_key, &GradientEstimator::InitWorkerState);
}

WorkerState OutlineWorkerState(const WorkerWeights& weights, const Estimators& estimators,
                               Key worker_key) {
  return StateOf(estimators, weights, worker_key, &GradientEstimator::OutlineState);
}

AggregatedGradient GradientWorkerCompute(const WorkerWeights& weights, const Estimators& estimators,
                                         int64_t windows, Key worker_key, WorkerState* state,
                                         Weighting weighting) {
  Require(windows >= 1, "a worker must run at least one window per update, got {}", windows);
  Require(state->estimators.size() == estimators.size(),
          "the worker's state is of {} estimators, there are {}", state->estimators.size(),
          estimators.size());
  std::vector<EstimatorOutput> outputs(estimators.size());
  ParallelFor(static_cast<int64_t>(estimators.size()), [&](int64_t e) {
    const auto index = static_cast<size_t>(e);
    if (estimators[index] == nullptr) {
      outputs[index].report.mean_loss = outputs[index].report.gradient_norm =
          std::numeric_limits<double>::quiet_NaN();
      return;
    }
    outputs[index] = RunWindows(weights, *estimators[index], windows, index, state->windows,
                                worker_key, &state->estimators[index]);
  });
  state->windows += windows;

  Eigen::VectorXd gradient = Eigen::VectorXd::Zero(weights.theta.size());
  double weight_sum = 0;
  MeanOfNumbers mean_loss;
  AggregatedGradient to_put;
  for (size_t e = 0; e < estimators.size(); ++e) {
    if (estimators[e] != nullptr) {
      const double weight = estimators[e]->weight;
      gradient += weight * outputs[e].gradient;
      weight_sum += weight;
      mean_loss.Add(outputs[e].report.mean_loss, weight);
      if (weighting == Weighting::kEqualNorm) {
        outputs[e].report.weight = weight;
        outputs[e].report.gradient = outputs[e].gradient.cast<float>();
      }
    }
    to_put.counts += outputs[e].report.counts;
    to_put.estimators.push_back(std::move(outputs[e].report));
  }
  to_put.outer_step = weights.outer.outer_step;
  to_put.gradient = (gradient / weight_sum).cast<float>();
  to_put.mean_loss = mean_loss.Get();
  return to_put;
}

std::vector<AggregatedGradient> ComputeWorkers(const WorkerWeights& weights,
                                               const Estimators& estimators, int64_t windows,
                                               std::span<const Key> worker_keys,
                                               std::span<WorkerState> states, Weighting weighting) {
  Require(worker_keys.size() == states.size(), "{} worker keys for {} worker states",
          worker_keys.size(), states.size());
  std::vector<AggregatedGradient> gradients(states.size());
  ParallelFor(static_cast<int64_t>(states.size()), [&](int64_t w) {
    const auto worker = static_cast<size_t>(w);
    gradients[worker] = GradientWorkerCompute(weights, estimators, windows, worker_keys[worker],
                                              &states[worker], weighting);
  });
  return gradients;
}

std::vector<double> MetaLosses(std::span<const Eigen::VectorXf> thetas,
                               const Estimators& estimators, Key worker_key, int64_t step) {
  Require(!thetas.empty(), "meta-losses: no thetas, wanted at least one");
  Require(step >= 0, "meta-losses: step is {}, wanted at least 0", step);
  CheckEstimators(estimators, thetas[0].size());
  std::vector<std::vector<double>> losses(estimators.size());
  ParallelFor(std::ssize(estimators), [&](int64_t e) {
    const auto index = static_cast<size_t>(e);
    if (estimators[index] == nullptr || estimators[index]->weight == 0) return;
    const auto* episodes = dynamic_cast<const FullES*>(estimators[index]->estimator.get());
    Require(episodes != nullptr,
            "meta-losses: estimator {} is not of type FullES, which runs whole episodes",
            EstimatorName(estimators, index));
    losses[index] =
        episodes->MetaLosses(thetas, {.outer_step = step}, WindowKey(worker_key, step, index));
  });

  std::vector<double> means(thetas.size());
  for (size_t k = 0; k < thetas.size(); ++k) {
    MeanOfNumbers mean;
    for (size_t e = 0; e < estimators.size(); ++e) {
      if (!losses[e].empty()) mean.Add(losses[e][k], estimators[e]->weight);
    }
    means[k] = mean.Get();
  }
  return means;
}

void AddUpNodes(int64_t first, int64_t workers, std::span<AggregatedGradient> gradients) {
  // The rows that a part of each gradient has become: of all estimators together, or of one.
  const auto add_up = [&](int64_t begin, std::span<AggregatedGradient> node, auto&& part_of) {
    std::vector<Addend> rows;
    std::vector<Eigen::VectorXf> taken;
    for (AggregatedGradient& gradient : node)
      taken.push_back(std::move(part_of(gradient).gradient));
    for (size_t i = 0; i < taken.size(); ++i) {
      if (taken[i].size() == 0) continue;
      rows.push_back({.first = begin + static_cast<int64_t>(i), .row = AsSpan(taken[i])});
    }
    if (rows.empty()) return;
    const int64_t size = taken[static_cast<size_t>(rows[0].first - begin)].size();
    part_of(node[0]).partial = {.gradients = std::ssize(rows),
                                .sum = AddUp(GradientSum::kTree, rows, size)};
  };
  const int64_t end = first + std::ssize(gradients);
  for (int64_t begin = first; begin < end;) {
    const int64_t count = LargestNode(begin, end, workers);
    const auto node =
        gradients.subspan(static_cast<size_t>(begin - first), static_cast<size_t>(count));
    if (count > 1) {
      add_up(begin, node, [](AggregatedGradient& g) -> AggregatedGradient& { return g; });
      for (size_t e = 0; e < node[0].estimators.size(); ++e) {
        add_up(begin, node,
               [e](AggregatedGradient& g) -> EstimatorReport& { return g.estimators[e]; });
      }
    }
    begin += count;
  }
}

}  // namespace lopt
