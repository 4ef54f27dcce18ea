#include "lopt/evaluation/evaluate.h"

#include <fmt/format.h>

#include <utility>

#include "lopt/base/error.h"
#include "lopt/evaluation/evaluated_task.h"
#include "lopt/tasks/registry.h"

namespace lopt {

void WarnBeyondHorizons(const EvaluationConfig& config, const EvaluatedOptimizers& optimizers) {
  std::vector<std::pair<std::string, int64_t>> trainings;
  for (const EvaluationTask& task : config.tasks) {
    trainings.emplace_back(task.name, (task.steps.empty() ? config.steps : task.steps).back());
  }
  for (const NamedLearnedOptimizer& learned : MetaTrained(optimizers)) {
    WarnBeyondHorizon(learned, trainings);
  }
}

Evaluation::Evaluation(const EvaluationConfig& config, EvaluatedOptimizers optimizers)
    : seeds_(config.seeds), optimizers_(std::move(optimizers)), names_(NamesOf(optimizers_)) {
  CheckEvaluationConfig(config);
  const TaskResources resources(config.data_dir);
  for (const EvaluationTask& task : config.tasks) {
    tasks_.push_back(std::make_unique<EvaluatedTask>(config, task, resources));
  }
  data_ = resources.DataChecksums();
}

Evaluation::~Evaluation() = default;

std::vector<RunResult> Evaluation::WholeTasks(std::vector<RunResult> results) const {
  const size_t per_task = names_.size() * static_cast<size_t>(seeds_);
  Require(results.size() <= per_task * tasks_.size(),
          "the evaluation has {} results of {} tasks, {} optimizers and {} seeds, got {}",
          per_task * tasks_.size(), tasks_.size(), names_.size(), seeds_, results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const RunResult& got = results[i];
    const EvaluatedTask& task = *tasks_[i / per_task];
    const std::string& optimizer = names_[i % per_task / static_cast<size_t>(seeds_)];
    const int64_t seed = static_cast<int64_t>(i) % seeds_;
    Require(got.task == task.name() && got.optimizer == optimizer && got.seed == seed &&
                got.steps == task.steps(),
            "result {} is of task '{}', {}, seed {}, after {} steps; this evaluation has task "
            "'{}', {}, seed {}, after {} steps there",
            i + 1, got.task, got.optimizer, got.seed, fmt::join(got.steps, ", "), task.name(),
            optimizer, seed, fmt::join(task.steps(), ", "));
  }
  results.resize(results.size() / per_task * per_task);
  return results;
}

EvaluationOutcome Evaluation::Run(const EvaluateOptions& options) {
  EvaluationOutcome outcome{.results = WholeTasks(options.finished)};
  Require(outcome.results.size() == options.finished.size(),
          "evaluation: the {} finished results are not those of whole tasks",
          options.finished.size());
  const size_t per_task = names_.size() * static_cast<size_t>(seeds_);
  const size_t first = outcome.results.size() / per_task;
  double work = 0;
  for (size_t t = first; t < tasks_.size(); ++t) work += tasks_[t]->Work(optimizers_);
  EvaluationWatch watch(options.on_progress, options.stop, std::ssize(tasks_), work);
  for (size_t t = first; t < tasks_.size(); ++t) {
    EvaluatedTask& task = *tasks_[t];
    watch.BeginTask(task.name(), static_cast<int64_t>(t) + 1);
    const auto results = task.Train(optimizers_, &watch);
    if (!results) {
      outcome.interrupted = true;
      break;
    }
    if (options.on_task) options.on_task(*results);
    outcome.results.insert(outcome.results.end(), results->begin(), results->end());
  }
  return outcome;
}

}  // namespace lopt
