#include "lopt/evaluation/trained_on.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/every_key.h"
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

// A task of an estimator, and inner steps that none of its trainings exceeded; 0 if unknown.
struct TrainedTask {
  nlohmann::ordered_json task;
  int64_t longest = 0;
};

// The trainings' number of steps, or the most where it is drawn. What an estimator of another kind
// of lengths has trained is as long as any, `trained_horizon`. `lengths` was `schedule`.
int64_t LongestTraining(const nlohmann::ordered_json& estimator, int64_t trained_horizon) {
  for (const char* lengths : {"lengths", "schedule"}) {
    const auto found = estimator.find(lengths);
    if (found == estimator.end() || !found->is_object()) continue;
    const auto type = found->find("type");
    if (type == found->end()) continue;
    const auto most = found->find(*type == "LogUniformLengthSchedule"     ? "max_length"
                                  : *type == "ConstantTruncationSchedule" ? "total_length"
                                                                          : "");
    if (most == found->end() || !most->is_number_integer()) continue;
    const auto steps = most->get<int64_t>();
    return trained_horizon == 0 ? steps : std::min(steps, trained_horizon);
  }
  return trained_horizon;
}

// The task, and those that it draws.
void AddTask(const nlohmann::ordered_json& task, int64_t longest, std::vector<TrainedTask>* tasks) {
  tasks->push_back({task, longest});
  if (HasOwnUnits(task)) AddTask(task.at("task"), longest, tasks);
  if (!task.is_object()) return;
  const auto type = task.find("type");
  const auto members = task.find("tasks");
  if (type == task.end() || *type != "SampledFamily" || members == task.end() ||
      !members->is_array()) {
    return;
  }
  for (const auto& member : *members) AddTask(member, longest, tasks);
}

// The tasks of the estimators. A config from elsewhere may have any form.
std::vector<TrainedTask> TrainedTasks(const Config& meta_training, int64_t trained_horizon) {
  std::vector<TrainedTask> tasks;
  if (meta_training.empty() || !meta_training.json().contains("estimators")) return tasks;
  for (const auto& estimator : meta_training.json().at("estimators")) {
    if (estimator.is_object() && estimator.contains("task")) {
      AddTask(estimator.at("task"), LongestTraining(estimator, trained_horizon), &tasks);
    }
  }
  return tasks;
}

std::string DataDirOf(const Config& meta_training) {
  const auto& json = meta_training.json();
  const auto data_dir = json.find("data_dir");
  return data_dir != json.end() && data_dir->is_string() ? data_dir->get<std::string>() : "";
}

// Whether it began with the weights of a file, which other tasks may have trained.
bool BeganWithTheta(const Config& meta_training) {
  if (meta_training.empty()) return false;
  const auto& json = meta_training.json();
  const auto init_theta = json.find("init_theta");
  return init_theta != json.end() && init_theta->is_string() &&
         !init_theta->get<std::string>().empty();
}

nlohmann::ordered_json ResolvedTask(Config task) {
  return WithEveryKey("task", std::move(task), TaskRegistry().table()).json();
}

// `resolved`: what `evaluated` stands for. A task that this program does not know is none of those
// that it can evaluate.
bool IsSameTask(const nlohmann::ordered_json& trained, const Config& evaluated,
                const nlohmann::ordered_json& resolved) {
  if (!trained.is_object()) return false;
  try {
    const Config own = Config::FromJson(trained);
    // Two of them can stand for the same config and still have different data sets.
    if (own.Type() == "FixedTask" && evaluated.Type() == "FixedTask") {
      return TaskLabel(own) == TaskLabel(evaluated);
    }
    const Config task = StandsFor(own);
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
  const std::vector<TrainedTask> trained = TrainedTasks(meta_training, trained_horizon);
  if (trained.empty()) return std::nullopt;
  const std::string data_dir = DataDirOf(meta_training);
  TaskSteps trained_on;
  for (const EvaluationTask& task : evaluation.tasks) {
    const nlohmann::ordered_json resolved = ResolvedTask(StandsFor(task.task));
    std::vector<int64_t> longest;  // of each estimator with this task
    for (const TrainedTask& one : trained) {
      if (IsSameTask(one.task, task.task, resolved)) longest.push_back(one.longest);
    }
    if (longest.empty() || !HasSameSource(task.task, data_dir, evaluation.data_dir)) continue;
    for (const int64_t steps : task.steps.empty() ? evaluation.steps : task.steps) {
      const auto as_long = [&](int64_t most) { return most == 0 || steps <= most; };
      if (std::ranges::any_of(longest, as_long)) trained_on[task.name].push_back(steps);
    }
  }
  return trained_on;
}

void SetTrainedOn(const EvaluationConfig& evaluation, EvaluatedOptimizers* optimizers) {
  for (NamedLearnedOptimizer& learned : optimizers->learned) {
    learned.trained_on = TrainedOn(learned.meta_training, learned.trained_horizon, evaluation);
    learned.trained_before = BeganWithTheta(learned.meta_training);
  }
}

}  // namespace lopt
