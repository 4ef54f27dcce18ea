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
    std::vector<Contender> tried;  // all learning rates of the first baseline, then of the next
    for (const Baseline& baseline : baselines) {
      for (const double rate : baseline.LearningRates(config_.trials)) {
        Contender contender{.name = baseline.name};
        for (size_t i = 0; i < (baseline.cosine ? steps_.size() : 1); ++i) {
          contender.rules.push_back(BindBaseline(baseline, rate, task_->params_layout()));
        }
        tried.push_back(std::move(contender));
      }
    }
    // [tried][asked steps]: sum over the tuning seeds, infinite if one diverged.
    std::vector losses(tried.size(), std::vector<double>(steps_.size()));
    for (const Training& training :
         TrainAll(tried, config_.tuning_seeds, Split::kInnerValid, kTuningDraw)) {
      for (size_t j = 0; j < training.judge_at.size(); ++j) {
        const auto at = std::ranges::find(steps_, training.judge_at[j]) - steps_.begin();
        const double loss = training.curve.judged[j].loss;
        losses[training.contender][at] += std::isfinite(loss) ? loss : kInfinity;
      }
    }
    std::vector<Contender> tuned;
    for (size_t b = 0; b < baselines.size(); ++b) {
      Contender contender{.name = baselines[b].name};
      const std::vector<double> rates = baselines[b].LearningRates(config_.trials);
      for (size_t i = 0; i < steps_.size(); ++i) {
        size_t best = 0;
        for (size_t r = 1; r < rates.size(); ++r) {
          const size_t first = b * rates.size();
          if (losses[first + r][i] < losses[first + best][i]) best = r;
        }
        contender.learning_rate.push_back(rates[best]);
        contender.at_edge.push_back(best == 0 || best + 1 == rates.size());
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
    const std::vector<Training> trainings =
        TrainAll(contenders, config_.seeds, Split::kTest, kSeedDraw);
    std::vector<RunResult> results;
    std::vector<std::vector<std::span<const float>>> taken_from;
    for (const Training& training : trainings) {
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
      AddTraining(training.curve, training.judge_at, &results.back());
      for (const int64_t steps : training.judge_at) {
        taken_from.back().push_back(std::span(training.curve.train_loss).first(steps));
      }
    }
    AddStepsToAdam(taken_from, &results);
    return results;
  }

 private:
  struct Training {
    size_t contender = 0;
    size_t rule = 0;
    int64_t seed = 0;
    std::vector<int64_t> judge_at = {};
    TrainingCurve curve = {};
  };

  // Trains every contender with every seed, in this order: once if one training serves all of the
  // asked numbers of steps, else once for each.
  std::vector<Training> TrainAll(const std::vector<Contender>& contenders, int64_t seeds,
                                 Split split, EvaluationDraw draw) {
    std::vector<Training> trainings;
    for (size_t c = 0; c < contenders.size(); ++c) {
      for (int64_t s = 0; s < seeds; ++s) {
        if (contenders[c].rules.size() != steps_.size()) {
          trainings.push_back({.contender = c, .rule = 0, .seed = s, .judge_at = steps_});
          continue;
        }
        for (size_t i = 0; i < steps_.size(); ++i) {
          trainings.push_back({.contender = c, .rule = i, .seed = s, .judge_at = {steps_[i]}});
        }
      }
    }
    ParallelFor(std::ssize(trainings), [&](int64_t i) {
      Training& training = trainings[static_cast<size_t>(i)];
      WorkspacePool::Lease lease(workspaces_);
      training.curve = TrainTask(
          *task_, *contenders[training.contender].rules[training.rule], training.judge_at, split,
          {.key = FoldIn(FoldIn(key_, draw), static_cast<uint64_t>(training.seed))}, *lease);
    });
    return trainings;
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
  const TaskResources resources(config.data_dir);
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
