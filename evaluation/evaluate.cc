#include "evaluation/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/eigen.h"
#include "base/error.h"
#include "base/key.h"
#include "base/parallel.h"
#include "base/workspace.h"
#include "evaluation/inner_training.h"
#include "evaluation/statistics.h"
#include "evaluation/summary.h"
#include "tasks/registry.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the evaluation's key is folded with, for each purpose.
enum EvaluationDraw : uint64_t { kTuningDraw = 0, kSeedDraw = 1 };

double Mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Steps until the interquartile mean over the curves (seeds) of FinalMean is at `target`; 0 if it
// never is.
int64_t StepsTo(double target, const std::vector<std::span<const float>>& curves) {
  if (!std::isfinite(target)) return 0;
  std::vector<double> means(curves.size());
  for (int64_t steps = 1; steps <= std::ssize(curves[0]); ++steps) {
    std::ranges::transform(curves, means.begin(),
                           [&](std::span<const float> curve) { return FinalMean(curve, steps); });
    if (InterquartileMean(means) <= target) return steps;
  }
  return 0;
}

// One optimizer on one task, its rule for each of the asked numbers of steps. Where all of these
// share one training, as those of optimizers that are not tuned do, there is one rule.
struct Contender {
  std::string name;
  std::vector<std::unique_ptr<UpdateRule>> rules = {};
  std::vector<double> learning_rate = {};
  std::vector<bool> at_edge = {};
};

std::unique_ptr<UpdateRule> BindBaseline(const Baseline& baseline, double learning_rate,
                                         const Layout& params) {
  const auto optimizer = baseline.Make(learning_rate);
  const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
  return optimizer->Bind(params, AsSpan(theta));
}

void CheckContenders(const Contenders& contenders) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    Require(names.insert(name).second,
            "evaluation: two optimizers are called '{}'; give one another name", name);
  };
  for (const Baseline& baseline : contenders.baselines) add(baseline.name);
  for (const LearnedContender& learned : contenders.learned) add(learned.name);
  Require(!names.empty(), "evaluation: there is nothing to judge; give a theta file or a baseline");
}

}  // namespace

class Evaluation::Task {
 public:
  Task(const EvaluationConfig& config, const EvaluationTask& task, const TaskResources& resources)
      : config_(config),
        name_(task.name),
        steps_(task.steps.empty() ? config.steps : task.steps),
        task_(TaskRegistry().Make(task.task, resources)),
        key_(KeyFromSeed(static_cast<uint64_t>(config.seed))) {}

  const std::string& name() const { return name_; }

  // Tunes the baselines: trials x tuning seeds trainings of each, and as many again for each
  // further number of steps if the learning rate depends on it.
  std::vector<Contender> Tune(const std::vector<Baseline>& baselines) {
    struct Trial {
      size_t baseline;
      size_t rate;
      int64_t seed;
      std::vector<int64_t> judge_at;
    };
    std::vector<Trial> trials;
    for (size_t b = 0; b < baselines.size(); ++b) {
      for (size_t r = 0; r < static_cast<size_t>(config_.trials); ++r) {
        for (int64_t s = 0; s < config_.tuning_seeds; ++s) {
          if (!baselines[b].cosine) {
            trials.push_back({b, r, s, steps_});
            continue;
          }
          for (const int64_t steps : steps_) trials.push_back({b, r, s, {steps}});
        }
      }
    }
    std::vector<TrainingCurve> curves(trials.size());
    ParallelFor(std::ssize(trials), [&](int64_t i) {
      const Trial& trial = trials[static_cast<size_t>(i)];
      const Baseline& baseline = baselines[trial.baseline];
      const auto rule = BindBaseline(baseline, baseline.LearningRates(config_.trials)[trial.rate],
                                     task_->params_layout());
      curves[static_cast<size_t>(i)] =
          Train(*rule, trial.judge_at, Split::kInnerValid, kTuningDraw, trial.seed);
    });

    // [baseline][asked steps][rate]: sum over the tuning seeds, infinite if one diverged.
    std::vector losses(baselines.size(),
                       std::vector(steps_.size(), std::vector<double>(config_.trials)));
    for (size_t i = 0; i < trials.size(); ++i) {
      for (size_t j = 0; j < trials[i].judge_at.size(); ++j) {
        const auto at = std::ranges::find(steps_, trials[i].judge_at[j]) - steps_.begin();
        const double loss = curves[i].judged[j].loss;
        losses[trials[i].baseline][at][trials[i].rate] += std::isfinite(loss) ? loss : kInfinity;
      }
    }
    std::vector<Contender> tuned;
    for (size_t b = 0; b < baselines.size(); ++b) {
      Contender contender{.name = baselines[b].name};
      const std::vector<double> rates = baselines[b].LearningRates(config_.trials);
      for (size_t i = 0; i < steps_.size(); ++i) {
        const auto best = std::ranges::min_element(losses[b][i]) - losses[b][i].begin();
        contender.learning_rate.push_back(rates[best]);
        contender.at_edge.push_back(best == 0 || best + 1 == config_.trials);
        contender.rules.push_back(BindBaseline(baselines[b], rates[best], task_->params_layout()));
      }
      tuned.push_back(std::move(contender));
    }
    return tuned;
  }

  Contender Untuned(const LearnedContender& learned) const {
    Contender contender{.name = learned.name};
    contender.rules.push_back(
        learned.optimizer->Bind(task_->params_layout(), AsSpan(learned.theta)));
    return contender;
  }

  std::vector<RunResult> Judge(const std::vector<Contender>& contenders) {
    struct Training {
      size_t contender;
      size_t rule;
      int64_t seed;
      std::vector<int64_t> judge_at;
    };
    std::vector<Training> trainings;
    for (size_t c = 0; c < contenders.size(); ++c) {
      for (int64_t s = 0; s < config_.seeds; ++s) {
        if (contenders[c].rules.size() != steps_.size()) {
          trainings.push_back({c, 0, s, steps_});
          continue;
        }
        for (size_t i = 0; i < steps_.size(); ++i) trainings.push_back({c, i, s, {steps_[i]}});
      }
    }
    std::vector<TrainingCurve> curves(trainings.size());
    ParallelFor(std::ssize(trainings), [&](int64_t i) {
      const Training& training = trainings[static_cast<size_t>(i)];
      curves[static_cast<size_t>(i)] =
          Train(*contenders[training.contender].rules[training.rule], training.judge_at,
                Split::kTest, kSeedDraw, training.seed);
    });

    std::vector<RunResult> results;
    std::vector<std::vector<std::span<const float>>> taken_from;
    for (size_t i = 0; i < trainings.size(); ++i) {
      const Training& training = trainings[i];
      const Contender& contender = contenders[training.contender];
      if (training.judge_at.front() == steps_.front()) {
        results.push_back({.task = name_,
                           .optimizer = contender.name,
                           .seed = training.seed,
                           .steps = steps_,
                           .learning_rate = contender.learning_rate,
                           .learning_rate_at_edge = contender.at_edge,
                           .trials = contender.learning_rate.empty() ? 0 : config_.trials});
        taken_from.emplace_back();
      }
      AddTraining(curves[i], training.judge_at, &results.back());
      for (const int64_t steps : training.judge_at) {
        taken_from.back().push_back(std::span(curves[i].train_loss).first(steps));
      }
    }
    AddStepsToAdam(taken_from, &results);
    return results;
  }

 private:
  TrainingCurve Train(const UpdateRule& rule, std::span<const int64_t> judge_at, Split split,
                      EvaluationDraw draw, int64_t seed) {
    WorkspacePool::Lease lease(workspaces_);
    return TrainTask(*task_, rule, judge_at, split,
                     {.key = FoldIn(FoldIn(key_, draw), static_cast<uint64_t>(seed))}, *lease);
  }

  static void AddTraining(const TrainingCurve& curve, std::span<const int64_t> judge_at,
                          RunResult* result) {
    for (size_t i = 0; i < judge_at.size(); ++i) {
      const int64_t steps = judge_at[i];
      const std::span losses = std::span(curve.train_loss).first(static_cast<size_t>(steps));
      result->final_train_loss.push_back(FinalMean(losses, steps));
      result->mean_train_loss.push_back(Mean(losses));
      result->final_train_accuracy.push_back(curve.train_accuracy.empty()
                                                 ? std::numeric_limits<double>::quiet_NaN()
                                                 : FinalMean(curve.train_accuracy, steps));
      result->test_loss.push_back(curve.judged[i].loss);
      result->test_accuracy.push_back(curve.judged[i].accuracy);
      result->seconds.push_back(curve.seconds * static_cast<double>(steps) /
                                static_cast<double>(judge_at.back()));
    }
    if (judge_at.back() == result->steps.back()) result->train_loss = curve.train_loss;
  }

  // `curves` has for each result the curve that each of its numbers was taken from.
  void AddStepsToAdam(const std::vector<std::vector<std::span<const float>>>& curves,
                      std::vector<RunResult>* results) const {
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::vector<double> adam;
      std::map<std::string, std::vector<std::span<const float>>> by_optimizer;
      for (size_t r = 0; r < results->size(); ++r) {
        const RunResult& result = (*results)[r];
        by_optimizer[result.optimizer].push_back(curves[r][i]);
        if (result.optimizer == kReferenceBaseline) adam.push_back(result.final_train_loss[i]);
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

  const EvaluationConfig config_;
  const std::string name_;
  std::vector<int64_t> steps_;
  std::shared_ptr<const TaskFamily> task_;
  Key key_;
  WorkspacePool workspaces_;
};

Evaluation::Evaluation(const EvaluationConfig& config, Contenders contenders)
    : contenders_(std::move(contenders)) {
  CheckContenders(contenders_);
  const TaskResources resources = MakeTaskResources(config.data_dir);
  for (const EvaluationTask& task : config.tasks) {
    tasks_.push_back(std::make_unique<Task>(config, task, resources));
  }
}

Evaluation::~Evaluation() = default;

EvaluationOutcome Evaluation::Run(const EvaluateOptions& options) {
  EvaluationOutcome outcome;
  const auto enter = [&](const Task& task, const std::string& stage) {
    outcome.interrupted = options.stop != nullptr && *options.stop;
    if (!outcome.interrupted && options.on_stage) options.on_stage(task.name(), stage);
    return !outcome.interrupted;
  };
  for (const auto& task : tasks_) {
    if (!enter(*task, fmt::format("tuning {} baselines", contenders_.baselines.size()))) break;
    std::vector<Contender> contenders = task->Tune(contenders_.baselines);
    for (const LearnedContender& learned : contenders_.learned) {
      contenders.push_back(task->Untuned(learned));
    }
    if (!enter(*task, fmt::format("training with {} optimizers", contenders.size()))) break;
    const std::vector<RunResult> results = task->Judge(contenders);
    if (options.on_task) options.on_task(results);
    outcome.results.insert(outcome.results.end(), results.begin(), results.end());
  }
  return outcome;
}

}  // namespace lopt
