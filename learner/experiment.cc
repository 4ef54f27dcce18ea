#include "lopt/learner/experiment.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

constexpr uint64_t kPlacementPurpose = 2;

const MetaTrainConfig& Checked(const MetaTrainConfig& config) {
  CheckConfig(config);
  return config;
}

// Of the ranges of estimators; the longest of their trainings may be kNever, and so the shortest.
TrainedRange UnionOf(const std::vector<TrainedRange>& ranges) {
  if (ranges.empty()) return {};
  TrainedRange all = ranges[0];
  bool sizes_known = true;
  for (const TrainedRange& range : ranges) {
    all.shortest_training = std::min(all.shortest_training, range.shortest_training);
    all.longest_training = std::max(all.longest_training, range.longest_training);
    if (range.smallest_batch > 0) {  // tasks without a data set have none
      all.smallest_batch = all.smallest_batch == 0
                               ? range.smallest_batch
                               : std::min(all.smallest_batch, range.smallest_batch);
    }
    all.largest_batch = std::max(all.largest_batch, range.largest_batch);
    all.fewest_params = std::min(all.fewest_params, range.fewest_params);
    all.most_params = std::max(all.most_params, range.most_params);
    all.largest_tensor = std::max(all.largest_tensor, range.largest_tensor);
    sizes_known = sizes_known && range.most_params > 0;
  }
  if (all.shortest_training == TruncationSchedule::kNever) all.shortest_training = 0;
  if (all.longest_training == TruncationSchedule::kNever) all.longest_training = 0;
  if (!sizes_known) {
    all = {.shortest_training = all.shortest_training, .longest_training = all.longest_training};
  }
  return all;
}

}  // namespace

std::vector<int64_t> EstimatorsOfWorker(const MetaTrainConfig& config, int64_t worker) {
  const auto count = static_cast<int64_t>(config.estimators.size());
  const int64_t per_worker =
      config.estimators_per_worker == 0 ? count : config.estimators_per_worker;
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (config.estimator_placement == EstimatorPlacement::kRandom) {
    std::vector<uint32_t> draws(order.size());
    const Key run_key = KeyFromSeed(static_cast<uint64_t>(config.seed));
    Bits(FoldIn(WorkerKey(run_key, worker), kPlacementPurpose), draws);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::pair(draws[static_cast<size_t>(a)], a) <
             std::pair(draws[static_cast<size_t>(b)], b);
    });
  } else {
    std::rotate(order.begin(), order.begin() + (worker * per_worker) % count, order.end());
  }
  order.resize(static_cast<size_t>(per_worker));
  std::sort(order.begin(), order.end());
  return order;
}

HeldOutOptions HeldOutOf(const MetaTrainConfig& config) {
  HeldOutOptions options = {
      .tasks = config.eval_tasks, .steps = config.eval_steps, .seeds = config.eval_seeds};
  if (options.tasks.empty()) {
    for (const Config& estimator : config.estimators) {
      const auto task = estimator.json().find("task");
      Require(
          task != estimator.json().end(),
          "eval_tasks is empty and the estimator {} has no task to evaluate theta on; name some",
          estimator.Type());
      options.tasks.push_back(Config::FromJson(*task, estimator.path() + ".task"));
    }
  }
  return options;
}

Config Experiment::LearnedOptimizerConfig() const {
  return Config::FromJson(resolved.json().at("learned_optimizer"), "learned_optimizer");
}

TrainedRange Experiment::RangeOfTraining(int64_t outer_steps) const {
  if (outer_steps < 1) return {};
  std::vector<TrainedRange> ranges;
  for (const LogicalWorker& worker : workers) {
    for (const auto& estimator : worker.estimators) {
      if (estimator == nullptr) continue;
      TrainedRange range = estimator->sizes;
      range.longest_training = estimator->schedule ? estimator->schedule->Longest(outer_steps)
                                                   : TruncationSchedule::kNever;
      range.shortest_training =
          estimator->schedule ? estimator->schedule->Shortest(outer_steps) : 0;
      ranges.push_back(range);
    }
  }
  return UnionOf(ranges);
}

ThetaFile Experiment::ThetaOf(const LearnerState& state, std::string version) const {
  // Who writes checkpoints changes nothing about theta, and an elastic learner sets it by itself.
  MetaTrainConfig about = config;
  about.gather_checkpoints = MetaTrainConfig().gather_checkpoints;
  const TrainedRange range = RangeOfTraining(state.outer_step);
  return {.learned_optimizer = LearnedOptimizerConfig(),
          .theta = learner.EvalTheta(state),
          .config = WriteOptions("", about),
          .seed = config.seed,
          .meta_steps = state.outer_step,
          .trained_horizon = range.longest_training,
          .trained_range = range,
          .version = std::move(version)};
}

void Experiment::RequireDataDirUsed() const {
  Require(config.data_dir.empty() || resources.data_dir_used(),
          "data_dir is {}, but no task of the config reads from it", config.data_dir);
}

Experiment::Experiment(const MetaTrainConfig& from, const Device* device)
    : config(Resolved(Checked(from))),
      resolved(WriteOptions("", config)),
      mode(*ModeRegistry().Make(from.mode)),
      device(device),
      resources(config.data_dir, device),
      optimizer(OptimizerRegistry().Make(config.learned_optimizer)),
      learner(optimizer, config.theta_opt,
              {.non_finite_gradient = config.non_finite_gradient,
               .sum = config.gradient_sum,
               .weighting = config.weighting,
               .frozen = config.frozen}),
      run_key(KeyFromSeed(static_cast<uint64_t>(config.seed))) {
  for (const Config& estimator : config.estimators) {
    estimators.push_back(EstimatorRegistry().Make(estimator, optimizer, resources));
    estimator_names.push_back(EstimatorName(estimators, estimators.size() - 1));
  }
  data = resources.DataChecksums();
  // Held-out tasks are made by the learner alone.
  if (config.eval_every == 0 || config.eval_tasks.empty()) RequireDataDirUsed();
  Require(device == nullptr || resources.device_used(),
          "device is {}, but no estimator of the config runs its windows there", config.device);
  std::vector<bool> placed(estimators.size());
  for (int64_t w = 0; w < config.workers; ++w) {
    LogicalWorker worker{.key = WorkerKey(run_key, w), .estimators = {}};
    worker.estimators.resize(estimators.size());
    for (const int64_t e : EstimatorsOfWorker(config, w)) {
      const auto index = static_cast<size_t>(e);
      worker.estimators[index] = estimators[index];
      placed[index] = true;
    }
    workers.push_back(std::move(worker));
  }
  for (size_t e = 0; e < estimators.size(); ++e) {
    if (!placed[e]) {
      spdlog::warn("no worker draws estimator {}, so it is not run at all", estimator_names[e]);
    }
  }
  const bool weights_differ = std::ranges::any_of(
      estimators, [&](const auto& made) { return made->weight != estimators[0]->weight; });
  if (config.estimators_per_worker == 1 && config.weighting == Weighting::kFixed &&
      weights_differ) {
    spdlog::warn(
        "estimators_per_worker is 1, so the estimators' weights have no effect: each worker's "
        "gradient is that of its one estimator. They have one with the weighting equal_norm, or "
        "with more estimators for each worker");
  }
}

}  // namespace lopt
