#include "lopt/evaluation/evaluated_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/parallel.h"
#include "lopt/base/workspace.h"
#include "lopt/evaluation/statistics.h"
#include "lopt/evaluation/summary.h"

namespace lopt {
namespace {

// What an evaluation's seed is folded with, so that it draws nothing that a meta-training of the
// same seed draws (learner/worker.h folds with smaller numbers).
constexpr uint64_t kEvaluationDomain = std::numeric_limits<uint64_t>::max();

// Steps until the interquartile mean over the curves (seeds) of FinalMean is at `target` and stays
// there; 0 if it is not there at the end.
int64_t StepsTo(double target, const std::vector<std::span<const float>>& curves) {
  if (!std::isfinite(target)) return 0;
  std::vector<double> means(curves.size());
  const int64_t length = std::ssize(curves[0]);
  int64_t above = length;  // the last number of steps after which it is not
  for (; above > 0; --above) {
    std::ranges::transform(curves, means.begin(),
                           [&](std::span<const float> curve) { return FinalMean(curve, above); });
    if (InterquartileMean(means) > target) break;
  }
  return above == length ? 0 : above + 1;
}

// Results are of losses and scores. The params of all trainings together may be too many to keep.
TrainingCurve WithoutParams(TrainingCurve curve) {
  for (std::vector<float>* one : {&curve.config, &curve.params, &curve.model_state}) {
    *one = std::vector<float>();
  }
  return curve;
}

void AddTraining(const TrainingCurve& curve, std::span<const int64_t> judge_at, RunResult* result) {
  for (size_t i = 0; i < judge_at.size(); ++i) {
    const int64_t steps = judge_at[i];
    const std::span losses = std::span(curve.train_loss).first(static_cast<size_t>(steps));
    result->final_train_loss.push_back(FinalMean(losses, steps));
    result->mean_train_loss.push_back(Mean(losses));
    result->final_train_accuracy.push_back(curve.train_accuracy.empty()
                                               ? std::numeric_limits<double>::quiet_NaN()
                                               : FinalMean(curve.train_accuracy, steps));
    const SplitScore& judged = curve.judged[i];
    result->test_loss.push_back(judged.loss);
    result->test_part_loss.insert(result->test_part_loss.end(), judged.part_losses.begin(),
                                  judged.part_losses.end());
    result->test_accuracy.push_back(judged.accuracy);
    result->blew_up.push_back(BlewUp(losses));
    result->seconds.push_back(curve.seconds * static_cast<double>(steps) /
                              static_cast<double>(judge_at.back()));
  }
  if (judge_at.back() == result->steps.back()) result->train_loss = curve.train_loss;
}

}  // namespace

EvaluatedTask::EvaluatedTask(const EvaluationConfig& config, const EvaluationTask& task,
                             const TaskResources& resources)
    : config_(config),
      name_(task.name),
      steps_(task.steps.empty() ? config.steps : task.steps),
      task_(TaskRegistry().Make(task.task, resources)),
      key_(FoldIn(KeyFromSeed(static_cast<uint64_t>(config.seed)), kEvaluationDomain)) {}

double EvaluatedTask::Work(const EvaluatedOptimizers& optimizers) const {
  const int64_t tuned = std::ssize(TunedOf(optimizers));
  const int64_t judged = std::ssize(optimizers.baselines) + std::ssize(optimizers.learned);
  return static_cast<double>(tuned * config_.trials * config_.tuning_seeds +
                             judged * config_.seeds) *
         Work(steps_);
}

double EvaluatedTask::Work(std::span<const int64_t> judge_at) const {
  return static_cast<double>(std::accumulate(judge_at.begin(), judge_at.end(), int64_t{0})) *
         static_cast<double>(task_->params_layout().size());
}

std::optional<std::vector<RunResult>> EvaluatedTask::Train(const EvaluatedOptimizers& optimizers,
                                                           EvaluationWatch* watch) {
  std::optional<std::vector<BoundOptimizer>> tuned = Tune(TunedOf(optimizers), watch);
  if (!tuned) return std::nullopt;
  auto next_tuned = std::make_move_iterator(tuned->begin());
  std::vector<BoundOptimizer> bound_optimizers;
  for (const Baseline& baseline : optimizers.baselines) {
    bound_optimizers.push_back(baseline.tuned.empty() ? Untuned(baseline) : *next_tuned++);
  }
  for (const NamedLearnedOptimizer& learned : optimizers.learned) {
    if (learned.tuned) {
      bound_optimizers.push_back(*next_tuned++);
      continue;
    }
    BoundOptimizer& bound = bound_optimizers.emplace_back(BoundOptimizer{.name = learned.name});
    bound.rules.push_back(BindLearned(learned, task_->params_layout()));
  }
  return Judge(bound_optimizers, watch);
}

// Tunes them, in their order. Nothing if it was stopped.
std::optional<std::vector<EvaluatedTask::BoundOptimizer>> EvaluatedTask::Tune(
    const std::vector<TunedOptimizer>& optimizers, EvaluationWatch* watch) {
  if (optimizers.empty()) return std::vector<BoundOptimizer>();
  watch->BeginStage(fmt::format("tuning {} optimizers", optimizers.size()));
  std::vector<Tuning> tunings(optimizers.size(), Tuning(steps_.size()));
  for (int64_t tried = 0; tried < config_.trials; tried += kTrialsPerRound) {
    const int64_t count = std::min(kTrialsPerRound, config_.trials - tried);
    if (!TryRound(optimizers, count, watch, &tunings)) return std::nullopt;
  }
  std::vector<BoundOptimizer> tuned;
  for (size_t c = 0; c < optimizers.size(); ++c) {
    tuned.push_back(Winner(optimizers[c], tunings[c]));
  }
  return tuned;
}

// Adds the first `count` trials of the next round to each tuning. False if it was stopped.
bool EvaluatedTask::TryRound(const std::vector<TunedOptimizer>& optimizers, int64_t count,
                             EvaluationWatch* watch, std::vector<Tuning>* tunings) {
  std::vector<BoundOptimizer> tried;              // [optimizers x count]
  std::vector<std::pair<size_t, size_t>> places;  // of these: optimizer, trial
  for (size_t c = 0; c < optimizers.size(); ++c) {
    Tuning& tuning = (*tunings)[c];
    const size_t first = tuning.front().size();
    for (std::vector<TunedTrial>& trials : tuning) {
      std::vector<std::vector<double>> round =
          optimizers[c].random_search
              ? RandomTrials(optimizers[c].tuned, trials.size(), FoldIn(key_, kSearchDraw))
              : NextTrials(optimizers[c].tuned, trials);
      round.resize(static_cast<size_t>(count));
      for (std::vector<double>& values : round) trials.push_back({.values = std::move(values)});
    }
    for (size_t trial = first; trial < tuning.front().size(); ++trial) {
      tried.push_back(Tried(optimizers[c], tuning, trial));
      places.emplace_back(c, trial);
    }
  }
  const auto trainings =
      TrainAll(tried, config_.tuning_seeds, Split::kInnerValid, kTuningDraw, watch);
  if (!trainings) return false;
  for (const Training& training : *trainings) {
    const auto [c, trial] = places[training.optimizer];
    for (size_t j = 0; j < training.judge_at.size(); ++j) {
      const auto i = std::ranges::find(steps_, training.judge_at[j]) - steps_.begin();
      const double loss = training.curve.judged[j].loss;
      (*tunings)[c][static_cast<size_t>(i)][trial].loss +=
          (std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity()) /
          static_cast<double>(config_.tuning_seeds);
    }
  }
  return true;
}

// One training serves all numbers of steps where these try the same values and their rules do not
// depend on the length.
EvaluatedTask::BoundOptimizer EvaluatedTask::Tried(const TunedOptimizer& optimizer,
                                                   const Tuning& tuning, size_t trial) const {
  const bool shared = !optimizer.scheduled && std::ranges::all_of(tuning, [&](const auto& trials) {
    return trials[trial].values == tuning.front()[trial].values;
  });
  BoundOptimizer bound{.name = optimizer.name};
  for (const std::vector<TunedTrial>& trials : tuning) {
    bound.rules.push_back(optimizer.bind(task_->params_layout(), trials[trial].values));
    if (shared) break;
  }
  return bound;
}

// With the best values of each number of steps.
EvaluatedTask::BoundOptimizer EvaluatedTask::Winner(const TunedOptimizer& optimizer,
                                                    const Tuning& tuning) const {
  BoundOptimizer bound{.name = optimizer.name};
  for (const std::vector<TunedTrial>& trials : tuning) {
    const TunedTrial& best = trials[BestTrial(trials)];
    for (size_t j = 0; j < best.values.size(); ++j) {
      const std::string& name = optimizer.tuned[j].name;
      (name == kLearningRate ? bound.learning_rate : bound.hyperparameters[name])
          .push_back(best.values[j]);
    }
    const auto [lowest, highest] = std::ranges::minmax(
        trials, {}, [](const TunedTrial& trial) { return trial.values.front(); });
    bound.at_edge.push_back(best.values.front() <= lowest.values.front() ||
                            best.values.front() >= highest.values.front());
    bound.tuning_loss.push_back(best.loss);
    bound.rules.push_back(optimizer.bind(task_->params_layout(), best.values));
  }
  return bound;
}

// A schedule over the training is over each of the numbers of steps.
EvaluatedTask::BoundOptimizer EvaluatedTask::Untuned(const Baseline& baseline) const {
  BoundOptimizer bound{
      .name = baseline.name,
      .learning_rate = std::vector<double>(steps_.size(), baseline.learning_rate())};
  const auto optimizer = baseline.Make({});
  const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
  const size_t rules = baseline.scheduled() ? steps_.size() : 1;
  for (size_t i = 0; i < rules; ++i) {
    bound.rules.push_back(optimizer->Bind(task_->params_layout(), AsSpan(theta)));
  }
  return bound;
}

std::optional<std::vector<RunResult>> EvaluatedTask::Judge(
    const std::vector<BoundOptimizer>& bound_optimizers, EvaluationWatch* watch) {
  watch->BeginStage(fmt::format("training {} optimizers", bound_optimizers.size()));
  const auto trainings = TrainAll(bound_optimizers, config_.seeds, Split::kTest, kSeedDraw, watch);
  if (!trainings) return std::nullopt;
  std::vector<RunResult> results;
  std::vector<std::vector<std::span<const float>>> taken_from;
  for (const Training& training : *trainings) {
    const BoundOptimizer& bound = bound_optimizers[training.optimizer];
    if (training.judge_at.front() == steps_.front()) {
      results.push_back({.task = name_,
                         .optimizer = bound.name,
                         .seed = training.seed,
                         .steps = steps_,
                         .learning_rate = bound.learning_rate,
                         .at_edge = bound.at_edge,
                         .hyperparameters = bound.hyperparameters,
                         .tuning_loss = bound.tuning_loss,
                         .trials = bound.tuning_loss.empty() ? 0 : config_.trials});
      taken_from.emplace_back();
    }
    AddTraining(training.curve, training.judge_at, &results.back());
    for (const int64_t steps : training.judge_at) {
      taken_from.back().push_back(std::span(training.curve.train_loss).first(steps));
    }
  }
  AddStepsToAdam(taken_from, &results);
  return results;
}

// Trains every optimizer with every seed, in this order: once if one training serves all of the
// asked numbers of steps, else once for each. Nothing if it was stopped before the last ended.
std::optional<std::vector<EvaluatedTask::Training>> EvaluatedTask::TrainAll(
    const std::vector<BoundOptimizer>& bound_optimizers, int64_t seeds, Split split, Draw draw,
    EvaluationWatch* watch) {
  std::vector<Training> trainings;
  for (size_t c = 0; c < bound_optimizers.size(); ++c) {
    for (int64_t s = 0; s < seeds; ++s) {
      if (bound_optimizers[c].rules.size() != steps_.size()) {
        trainings.push_back({.optimizer = c, .rule = 0, .seed = s, .judge_at = steps_});
        continue;
      }
      for (size_t i = 0; i < steps_.size(); ++i) {
        trainings.push_back({.optimizer = c, .rule = i, .seed = s, .judge_at = {steps_[i]}});
      }
    }
  }
  const std::vector<std::vector<size_t>> groups = Groups(trainings, seeds);
  WorkspacePool workspaces;
  std::atomic<bool> all_trained = true;
  ParallelFor(std::ssize(groups), [&](int64_t g) {
    const std::vector<size_t>& group = groups[static_cast<size_t>(g)];
    const Training& first = trainings[group.front()];
    std::vector<TrainingSource> sources;
    for (const size_t i : group) {
      sources.push_back(
          {.key = FoldIn(FoldIn(key_, draw), static_cast<uint64_t>(trainings[i].seed))});
    }
    WorkspacePool::Lease lease(workspaces);
    std::vector<TrainingCurve> curves =
        TrainTasks(*task_, *bound_optimizers[first.optimizer].rules[first.rule], first.judge_at,
                   split, sources, *lease, watch->stop());
    if (curves.empty()) {
      all_trained = false;
      return;
    }
    for (size_t i = 0; i < group.size(); ++i) {
      trainings[group[i]].curve = WithoutParams(std::move(curves[i]));
    }
    const int64_t trained = std::ssize(group);
    watch->Trained(first.judge_at.back() * trained,
                   Work(first.judge_at) * static_cast<double>(trained));
  });
  if (!all_trained) return std::nullopt;
  return trainings;
}

// The places of the trainings that advance together: as many seeds of one rule as the task wants
// in one evaluation.
std::vector<std::vector<size_t>> EvaluatedTask::Groups(const std::vector<Training>& trainings,
                                                       int64_t seeds) const {
  const int64_t preferred = task_->PreferredRows();
  const int64_t rows = preferred == TaskFamily::kAllRows ? seeds : preferred;
  std::vector<std::vector<size_t>> groups;
  std::map<std::pair<size_t, size_t>, size_t> latest;  // group, by optimizer and rule
  for (size_t i = 0; i < trainings.size(); ++i) {
    const std::pair of(trainings[i].optimizer, trainings[i].rule);
    const auto [at, added] = latest.try_emplace(of, groups.size());
    if (added || std::ssize(groups[at->second]) == rows) {
      at->second = groups.size();
      groups.emplace_back();
    }
    groups[at->second].push_back(i);
  }
  return groups;
}

// `curves` has for each result the curve that each of its numbers was taken from.
void EvaluatedTask::AddStepsToAdam(const std::vector<std::vector<std::span<const float>>>& curves,
                                   std::vector<RunResult>* results) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    std::vector<double> adam;
    std::map<std::string, std::vector<std::span<const float>>> by_optimizer;
    for (size_t r = 0; r < results->size(); ++r) {
      const RunResult& result = (*results)[r];
      by_optimizer[result.optimizer].push_back(curves[r][i]);
      if (result.optimizer == kReferenceBaseline) {
        adam.push_back(result.Diverged(i) ? std::numeric_limits<double>::infinity()
                                          : result.final_train_loss[i]);
      }
    }
    if (adam.empty()) return;
    const double target = InterquartileMean(adam);
    std::map<std::string, int64_t> steps;
    for (const auto& [optimizer, seeds] : by_optimizer) steps[optimizer] = StepsTo(target, seeds);
    for (RunResult& result : *results) {
      result.steps_to_adam.push_back(steps.at(result.optimizer));
    }
  }
}

}  // namespace lopt
