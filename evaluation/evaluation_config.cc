#include "evaluation/evaluation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tasks/registry.h"

namespace lopt {
namespace {

void CheckSteps(const std::vector<int64_t>& steps, const std::string& key) {
  Require(std::ranges::adjacent_find(steps, std::greater_equal()) == steps.end(),
          "config: '{}' must ascend, got {}", key, fmt::join(steps, ", "));
}

}  // namespace

void EvaluationConfig::Visit(FieldVisitor& v) {
  v.Field("name", &name, {}, "Name of the evaluation, for people.");
  v.Field("steps", &steps, AtLeast(1),
          "Numbers of inner steps to judge after, ascending. Baselines are tuned for each.");
  v.Field("seeds", &seeds, AtLeast(1),
          "Trainings of every optimizer on every task, each with a task, start and data of its "
          "own, the same for all optimizers.");
  v.Field("trials", &trials, AtLeast(2),
          "Learning rates that each baseline is tried with on each task.");
  v.Field("tuning_seeds", &tuning_seeds, AtLeast(1),
          "Trainings of every trial; the mean loss on the split inner_valid decides. Their draws "
          "are not those of the seeds.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the evaluation follows from it.");
  v.Field("data_dir", &data_dir, {},
          "Directory with image data; empty: tasks generate the default data.");
}

void VisitEvaluationTask(FieldVisitor& v, EvaluationTask* task) {
  v.Typed("task", &task->task, TaskRegistry().table(), "What is trained.");
  v.Field("steps", &task->steps, AtLeast(1),
          "In place of the evaluation's `steps`; empty: the evaluation's.");
}

EvaluationConfig ReadEvaluationConfig(const Config& config) {
  nlohmann::ordered_json top = config.json();
  EvaluationConfig result;
  Require(top.contains("tasks"),
          "config: 'tasks' is missing: an object with a name for each task, such as {}",
          R"({"tasks": {"small": {"task": {"type": "ImageMLP"}}}})");
  const Config tasks = Config::FromJson(top["tasks"], "tasks");
  top.erase("tasks");
  ReadFields(Config::FromJson(top, config.path()), [&](FieldVisitor& v) { result.Visit(v); });
  CheckSteps(result.steps, "steps");
  Require(!result.steps.empty(), "config: 'steps' is empty, wanted at least one number");
  for (const auto& [name, json] : tasks.json().items()) {
    const std::string path = "tasks." + name;
    EvaluationTask task{.name = name};
    ReadFields(Config::FromJson(json, path),
               [&](FieldVisitor& v) { VisitEvaluationTask(v, &task); });
    CheckSteps(task.steps, path + ".steps");
    result.tasks.push_back(std::move(task));
  }
  Require(!result.tasks.empty(), "config: 'tasks' is empty, wanted at least one task");
  return result;
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
