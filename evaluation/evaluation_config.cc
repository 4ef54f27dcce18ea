#include "lopt/evaluation/evaluation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/problems.h"
#include "lopt/base/strict_json.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

void CheckSteps(const std::vector<int64_t>& steps, const std::string& key, Problems* problems) {
  if (std::ranges::adjacent_find(steps, std::greater_equal()) != steps.end()) {
    problems->Add(fmt::format("'{}' must ascend, got {}", key, fmt::join(steps, ", ")));
  }
}

std::string TaskPath(const std::string& name) { return JoinKey("tasks", name); }

// What no key by itself can say.
void CheckCombinations(const EvaluationConfig& config, Problems* problems) {
  CheckSteps(config.steps, "steps", problems);
  if (config.steps.empty()) {
    problems->Add("'steps' is empty, wanted at least one number");
  }
  for (const EvaluationTask& task : config.tasks) {
    CheckSteps(task.steps, JoinKey(TaskPath(task.name), "steps"), problems);
  }
}

// What a file, an object of tasks by their names, cannot get wrong.
void CheckTaskNames(const EvaluationConfig& config, Problems* problems) {
  if (config.tasks.empty()) problems->Add("there are no tasks, wanted at least one");
  std::set<std::string> names;
  for (const EvaluationTask& task : config.tasks) {
    if (!names.insert(task.name).second) {
      problems->Add(fmt::format("two tasks are called '{}'; give one another name", task.name));
    }
  }
}

// The tasks, an object in the file that has one by each name.
void ReadTasks(const nlohmann::ordered_json& json, EvaluationConfig* config, Problems* problems) {
  if (!json.is_object() || json.empty()) {
    problems->Add(fmt::format("'tasks' {}; wanted an object with a name for each task, such as {}",
                              json.is_null()     ? "is missing"
                              : json.is_object() ? "is empty"
                                                 : "is " + ShowJson(json),
                              R"({"small": {"task": {"type": "ImageMLP"}}})"));
    return;
  }
  for (const auto& [name, members] : json.items()) {
    const std::string path = TaskPath(name);
    if (!members.is_object()) {
      problems->Add(
          fmt::format("'{}' must be an object with a \"task\", got {}", path, ShowJson(members)));
      continue;
    }
    EvaluationTask task{.name = name};
    ReadFields(
        Config::FromJson(members, path), [&](FieldVisitor& v) { VisitEvaluationTask(v, &task); },
        problems);
    config->tasks.push_back(std::move(task));
  }
}

}  // namespace

void EvaluationConfig::Visit(FieldVisitor& v) {
  v.Field("name", &name, "Name of the evaluation, for people.");
  v.Field("steps", &steps, Between(1, 1e7),
          "Numbers of inner steps to judge after, ascending. Baselines are tuned for each.");
  v.Field("seeds", &seeds, Between(1, 10000),
          "Trainings of every optimizer on every task, each with a task, start and data of its "
          "own, the same for all optimizers.");
  v.Field("trials", &trials, Between(2, 10000),
          "Trials of each baseline on each task: learning rates, or values of all that is tuned.");
  v.Field("tuning_seeds", &tuning_seeds, Between(1, 10000),
          "Trainings of every trial; the mean loss on the split inner_valid decides. Their draws "
          "are not those of the seeds.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the evaluation follows from it.");
  v.Field("data_dir", &data_dir,
          "Directory of the tasks' data files; empty: image tasks draw their data.");
}

void VisitEvaluationTask(FieldVisitor& v, EvaluationTask* task) {
  v.Typed("task", &task->task, TaskRegistry().table(), "What is trained.");
  v.Field("steps", &task->steps, Between(1, 1e7),
          "In place of the evaluation's `steps`; empty: the evaluation's.");
}

EvaluationConfig ReadEvaluationConfig(const Config& config) {
  Problems problems("config");
  nlohmann::ordered_json members = config.json();
  const nlohmann::ordered_json tasks = members.value("tasks", nlohmann::ordered_json());
  members.erase("tasks");
  EvaluationConfig result;
  ReadFields(
      Config::FromJson(std::move(members), config.path()),
      [&](FieldVisitor& v) { result.Visit(v); }, &problems);
  ReadTasks(tasks, &result, &problems);
  CheckCombinations(result, &problems);
  problems.ThrowIfAny();
  return result;
}

void CheckEvaluationConfig(const EvaluationConfig& config) {
  CheckOptions("evaluation", config);
  for (const EvaluationTask& task : config.tasks) {
    EvaluationTask copy = task;
    CheckFields(fmt::format("evaluation: task '{}'", task.name),
                [&](FieldVisitor& v) { VisitEvaluationTask(v, &copy); });
  }
  Problems problems("evaluation");
  CheckTaskNames(config, &problems);
  CheckCombinations(config, &problems);
  problems.ThrowIfAny();
}

void SkipTask(const std::string& name, EvaluationConfig* config) {
  std::vector<std::string> names;
  for (const EvaluationTask& task : config->tasks) names.push_back(task.name);
  Require(std::erase_if(config->tasks, [&](const auto& task) { return task.name == name; }) > 0,
          "There is no task '{}' to skip; there are {}{}", name, fmt::join(names, ", "),
          DidYouMean(name, names));
  Require(!config->tasks.empty(), "Without '{}' no task is left", name);
}

Config WriteEvaluationConfig(const EvaluationConfig& config) {
  nlohmann::ordered_json json = WriteOptions("", config).json();
  for (const EvaluationTask& task : config.tasks) {
    EvaluationTask copy = task;
    json["tasks"][task.name] =
        WriteFields("", [&](FieldVisitor& v) { VisitEvaluationTask(v, &copy); }).json();
  }
  return Config::FromJson(std::move(json));
}

}  // namespace lopt
