#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/registry.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tasks/derivatives.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "tests/contracts/examples.h"

namespace lopt::contracts {

// A thing made from an example.
template <class Made>
struct Built {
  std::string name;  // its config, for messages
  Config config;
  Example example;
  std::shared_ptr<const Made> made;
};

// Whether a task of this config is made by the torch module, or one inside it.
inline bool NeedsTorchModule(const Config& config) {
  TaskTypes torch_tasks("torch task");
  torch_types::AddAll(&torch_tasks);
  const std::string text = config.Dump(-1);
  return std::ranges::any_of(torch_tasks.table().entries(), [&](const TypeEntry& entry) {
    return text.find("\"type\":\"" + entry.type + "\"") != std::string::npos;
  });
}

// Every type of a table: from its examples or, if it has none, from `default_config` with its type.
// `make` turns a Config into a pointer. Throws Error if a type cannot be built, or an example's
// type is not registered. Examples that are `left_out` are not built.
template <class Made, class Make>
std::vector<Built<Made>> BuildEvery(
    const TypeTable& table, const std::vector<Example>& examples, const std::string& default_config,
    const Make& make,
    const std::function<bool(const Example&)>& left_out = [](const Example&) { return false; }) {
  std::vector<Built<Made>> all;
  const auto add = [&](const std::string& type, const Config& config, const Example& example) {
    if (left_out(example)) return;
    if (&table == &TaskRegistry().table() && NeedsTorchModule(config) &&
        !FindModule(kTorchModule)) {
      MESSAGE("left out, because the torch module is not installed: ", config.Dump(-1));
      return;
    }
    try {
      all.push_back({config.Dump(-1), config, example, make(config)});
    } catch (const Error& error) {
      Fail(
          "the contract suite cannot build {} '{}' from {}: {}. A type needs defaults or an "
          "example "
          "in tests/contracts/examples.h",
          table.kind(), type, config.Dump(-1), error.what());
    }
  };
  for (const Example& example : examples) {
    table.Find(Config::Parse(example.config, "tests/contracts/examples.h"));
  }
  for (const TypeEntry& entry : table.entries()) {
    if (entry.type == "FixedTask") continue;  // makes tasks of other types, and reads files
    bool has_example = false;
    for (const Example& example : examples) {
      const Config config = Config::Parse(example.config, "tests/contracts/examples.h");
      if (config.Type() == entry.type) {
        has_example = true;
        add(entry.type, config, example);
      }
    }
    if (!has_example) {
      add(entry.type, Config::Parse(default_config, "defaults").With("type", entry.type), {});
    }
  }
  return all;
}

// Images are made once a process.
inline const TaskResources& Resources() {
  static const TaskResources resources("");
  return resources;
}

inline std::vector<Built<TaskFamily>> EveryTask() {
  return BuildEvery<TaskFamily>(
      TaskRegistry().table(), TaskExamples(), "{}",
      [](const Config& config) { return TaskRegistry().Make(config, Resources()); });
}

inline std::vector<Built<LearnedOptimizer>> EveryOptimizer() {
  return BuildEvery<LearnedOptimizer>(
      OptimizerRegistry().table(), OptimizerExamples(), "{}",
      [](const Config& config) { return OptimizerRegistry().Make(config); });
}

inline std::vector<Built<TruncationSchedule>> EverySchedule() {
  return BuildEvery<TruncationSchedule>(
      ScheduleRegistry().table(), ScheduleExamples(), "{}",
      [](const Config& config) { return ScheduleRegistry().Make(config); });
}

// Whether tasks of this config can be differentiated twice here.
inline bool HasDerivatives(const Config& task) {
  const std::vector<std::string> types = TypesWithDerivatives();
  const std::string text = task.Dump(-1);
  return FindModule(kTorchModule) && std::ranges::find(types, task.Type()) != types.end() &&
         text.find("\"augment\"") == std::string::npos &&
         text.find("\"transformer\"") == std::string::npos;
}

inline bool HasDerivatives(const LearnedOptimizer& optimizer) {
  const std::vector<std::string> types = TypesWithTorchScript();
  const std::string type = optimizer.config().Type();
  // Celo2 goes by names, which its script does not see.
  return type != "Celo2" && !optimizer.needs_loss() &&
         std::ranges::find(types, type) != types.end();
}

// Every estimator of `optimizer` on tasks of the config `task`; those that differentiate tasks only
// where it can be.
inline std::vector<Built<ConfiguredEstimator>> EveryEstimator(
    const std::shared_ptr<const LearnedOptimizer>& optimizer, const Config& task) {
  return BuildEvery<ConfiguredEstimator>(
      EstimatorRegistry().table(), EstimatorExamples(),
      R"({"task": {"type": "QuadraticTask"},
          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 7}})",
      [&](const Config& config) {
        return EstimatorRegistry().Make(config.With("task", task.Dump(-1)), optimizer, Resources());
      },
      [&](const Example& example) {
        return example.needs_derivatives && !(HasDerivatives(task) && HasDerivatives(*optimizer));
      });
}

}  // namespace lopt::contracts
