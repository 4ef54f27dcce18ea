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

int64_t Experiment::TrainedHorizon(int64_t outer_steps) const {
  if (outer_steps < 1) return 0;
  int64_t horizon = 0;
  for (const LogicalWorker& worker : workers) {
    for (const auto& estimator : worker.estimators) {
      if (estimator == nullptr) continue;
      horizon = std::max(horizon, estimator->schedule ? estimator->schedule->Longest(outer_steps)
                                                      : TruncationSchedule::kNever);
    }
  }
  return horizon == TruncationSchedule::kNever ? 0 : horizon;
}

ThetaFile Experiment::ThetaOf(const LearnerState& state, std::string version) const {
  // Who writes checkpoints changes nothing about theta, and an elastic learner sets it by itself.
  MetaTrainConfig about = config;
  about.gather_checkpoints = MetaTrainConfig().gather_checkpoints;
  return {.learned_optimizer = LearnedOptimizerConfig(),
          .theta = learner.EvalTheta(state),
          .config = WriteOptions("", about),
          .seed = config.seed,
          .meta_steps = state.outer_step,
          .trained_horizon = TrainedHorizon(state.outer_step),
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
}

}  // namespace lopt
