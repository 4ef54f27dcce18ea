#include "lopt/tasks/torch/torch_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lopt/base/isa.h"

namespace lopt {
namespace {

// The first config in a config, or itself, of a type that the module makes; null: none.
nlohmann::ordered_json FirstTorchTask(const nlohmann::ordered_json& json, const TaskTypes& torch) {
  if (json.is_object() && json.contains("type") && json["type"].is_string()) {
    const auto type = json["type"].get<std::string>();
    const auto has_type = [&](const TypeEntry& entry) { return entry.type == type; };
    if (std::ranges::any_of(torch.table().entries(), has_type)) return json;
  }
  if (json.is_structured()) {
    for (const auto& part : json) {
      if (auto task = FirstTorchTask(part, torch); !task.is_null()) return task;
    }
  }
  return {};
}

nlohmann::ordered_json FirstTorchTask(const Config& config) {
  TaskTypes torch("task");
  torch_types::AddAll(&torch);
  return FirstTorchTask(config.json(), torch);
}

}  // namespace

const TorchModule& OpenTorchModule(std::string_view who) {
  return *static_cast<const TorchModule*>(OpenModule(kTorchModule, who));
}

std::string MissingTorchModule(const Config& task) {
  const std::string why = ShortWhyNoModule(kTorchModule);
  if (why.empty()) return "";
  const nlohmann::ordered_json torch_task = FirstTorchTask(task);
  if (torch_task.is_null()) return "";
  return fmt::format("{} needs the torch module {}, which is {}",
                     torch_task["type"].get<std::string>(), ModuleFileName(kTorchModule), why);
}

std::shared_ptr<const TaskFamily> MakeTorchTask(const Config& config,
                                                const TaskResources& resources) {
  const TorchModule& module = OpenTorchModule("task '" + config.Type() + "'");
  return module.tasks(CurrentIsa()).Make(config, resources);
}

std::vector<GraphNode> GraphOfTorchTask(const Config& config, const TaskResources& resources) {
  nlohmann::ordered_json json = FirstTorchTask(config);
  if (json.is_null()) return {};
  const Config task = Config::FromJson(std::move(json), config.path());
  return OpenTorchModule("task '" + task.Type() + "'").task_graph(CurrentIsa(), task, resources);
}

}  // namespace lopt
