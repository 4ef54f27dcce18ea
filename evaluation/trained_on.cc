#include "lopt/evaluation/trained_on.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

// Whether it draws its task in the task's own units, too.
bool HasOwnUnits(const nlohmann::ordered_json& task) {
  if (!task.is_object() || !task.contains("task")) return false;
  const auto type = task.find("type");
  const auto levels = task.find("levels");
  return type != task.end() && *type == "ReparamWeights" && levels != task.end() &&
         levels->is_array() && std::ranges::find(*levels, "none") != levels->end();
}

// The tasks of the estimators. A config from elsewhere may have any form.
std::vector<nlohmann::ordered_json> TrainedTasks(const Config& meta_training) {
  std::vector<nlohmann::ordered_json> tasks;
  if (meta_training.empty() || !meta_training.json().contains("estimators")) return tasks;
  for (const auto& estimator : meta_training.json().at("estimators")) {
    if (estimator.is_object() && estimator.contains("task")) {
      const nlohmann::ordered_json* task = &estimator.at("task");
      tasks.push_back(*task);
      for (; HasOwnUnits(*task); task = &task->at("task")) tasks.push_back(task->at("task"));
    }
  }
  return tasks;
}

std::string DataDirOf(const Config& meta_training) {
  const auto& json = meta_training.json();
  const auto data_dir = json.find("data_dir");
  return data_dir != json.end() && data_dir->is_string() ? data_dir->get<std::string>() : "";
}

// With a value for every key.
nlohmann::ordered_json ResolvedTask(Config task) {
  return WriteFields("",
                     [&](FieldVisitor& v) { v.Typed("task", &task, TaskRegistry().table(), ""); })
      .json()
      .at("task");
}

// A task that this program does not know is none of those that it can evaluate.
bool IsSameTask(const nlohmann::ordered_json& trained, const nlohmann::ordered_json& resolved) {
  if (!trained.is_object()) return false;
  try {
    const Config task = StandsFor(Config::FromJson(trained));
    // As an unordered object: the order of keys says nothing.
    return task.Type() == resolved.at("type").get<std::string>() &&
           nlohmann::json(ResolvedTask(task)) == nlohmann::json(resolved);
  } catch (const Error&) {
    return false;
  }
}

bool ReadsFiles(const Config& task, const std::string& data_dir) {
  const TaskResources resources(data_dir);
  try {
    TaskRegistry().Make(task, resources);
  } catch (const Error&) {
    // The directory may be gone; what matters is whether the task asked for it.
  }
  return resources.data_dir_used();
}

// Whether both draw the data of the task, or both read it from files.
bool HasSameSource(const Config& task, const std::string& trained, const std::string& evaluated) {
  return trained.empty() == evaluated.empty() ||
         !ReadsFiles(task, trained.empty() ? evaluated : trained);
}

}  // namespace

std::optional<TaskSteps> TrainedOn(const Config& meta_training, int64_t trained_horizon,
                                   const EvaluationConfig& evaluation) {
  const std::vector<nlohmann::ordered_json> trained = TrainedTasks(meta_training);
  if (trained.empty()) return std::nullopt;
  const std::string data_dir = DataDirOf(meta_training);
  TaskSteps trained_on;
  for (const EvaluationTask& task : evaluation.tasks) {
    const nlohmann::ordered_json resolved = ResolvedTask(StandsFor(task.task));
    const bool same = std::ranges::any_of(
        trained, [&](const auto& trained_task) { return IsSameTask(trained_task, resolved); });
    if (!same || !HasSameSource(task.task, data_dir, evaluation.data_dir)) continue;
    for (const int64_t steps : task.steps.empty() ? evaluation.steps : task.steps) {
      if (trained_horizon == 0 || steps <= trained_horizon) trained_on[task.name].push_back(steps);
    }
  }
  return trained_on;
}

void SetTrainedOn(const EvaluationConfig& evaluation, EvaluatedOptimizers* optimizers) {
  for (NamedLearnedOptimizer& learned : optimizers->learned) {
    learned.trained_on = TrainedOn(learned.meta_training, learned.trained_horizon, evaluation);
  }
}

}  // namespace lopt
