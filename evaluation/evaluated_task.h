#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/evaluation_progress.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// One task of an evaluation, on which optimizers are tuned and all judged.
class EvaluatedTask {
 public:
  // Throws Error if the task cannot be made.
  EvaluatedTask(const EvaluationConfig& config, const EvaluationTask& task,
                const TaskResources& resources);

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& steps() const { return steps_; }
  // Of Train; see EvaluationProgress.
  double Work(const EvaluatedOptimizers& optimizers) const;

  // Every result, by optimizer (baselines first) and seed. Nothing if it was told to stop before
  // the last training ended.
  std::optional<std::vector<RunResult>> Train(const EvaluatedOptimizers& optimizers,
                                              EvaluationWatch* watch);

 private:
  // One optimizer, its rule for each of the asked numbers of steps. Where all of these share one
  // training, as those of learned optimizers that are not tuned do, there is one rule.
  struct BoundOptimizer {
    std::string name;
    std::vector<std::unique_ptr<UpdateRule>> rules = {};
    std::vector<double> learning_rate = {};  // of a baseline, for each of the numbers of steps
    // Of a tuned one, likewise.
    std::vector<bool> at_edge = {};
    std::map<std::string, std::vector<double>> hyperparameters = {};
    std::vector<double> tuning_loss = {};
  };
  // The trials of an optimizer for each of the asked numbers of steps, [steps][tried].
  using Tuning = std::vector<std::vector<TunedTrial>>;
  struct Training {
    size_t optimizer = 0;
    size_t rule = 0;
    int64_t seed = 0;
    std::vector<int64_t> judge_at = {};
    TrainingCurve curve = {};  // without params, model state and config
  };
  // What the evaluation's key is folded with, for each purpose.
  enum Draw : uint64_t { kTuningDraw = 0, kSeedDraw = 1, kSearchDraw = 2 };

  double Work(std::span<const int64_t> judge_at) const;
  std::optional<std::vector<BoundOptimizer>> Tune(const std::vector<TunedOptimizer>& optimizers,
                                                  EvaluationWatch* watch);
  bool TryRound(const std::vector<TunedOptimizer>& optimizers, int64_t count,
                EvaluationWatch* watch, std::vector<Tuning>* tunings);
  BoundOptimizer Tried(const TunedOptimizer& optimizer, const Tuning& tuning, size_t trial) const;
  BoundOptimizer Winner(const TunedOptimizer& optimizer, const Tuning& tuning) const;
  BoundOptimizer Untuned(const Baseline& baseline) const;
  std::optional<std::vector<RunResult>> Judge(const std::vector<BoundOptimizer>& bound_optimizers,
                                              EvaluationWatch* watch);
  std::optional<std::vector<Training>> TrainAll(const std::vector<BoundOptimizer>& bound_optimizers,
                                                int64_t seeds, Split split, Draw draw,
                                                EvaluationWatch* watch);
  std::vector<std::vector<size_t>> Groups(const std::vector<Training>& trainings,
                                          int64_t seeds) const;
  void AddStepsToAdam(const std::vector<std::vector<std::span<const float>>>& curves,
                      std::vector<RunResult>* results) const;

  const EvaluationConfig config_;
  const std::string name_;
  const std::vector<int64_t> steps_;
  const std::shared_ptr<const TaskFamily> task_;
  const Key key_;
};

}  // namespace lopt
