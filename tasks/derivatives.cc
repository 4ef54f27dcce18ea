#include "lopt/tasks/derivatives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/tasks/torch/torch_module.h"

namespace lopt {

std::vector<std::string> TypesWithDerivatives() {
  std::vector<std::string> types = {"QuadraticTask", "FixedDimQuadraticFamily", "LogQuadraticTask",
                                    "ImageMLP", "ImageConv"};
  TaskTypes torch_tasks("torch task");
  torch_types::AddAll(&torch_tasks);
  for (const TypeEntry& entry : torch_tasks.table().entries()) {
    // LibTorch has no second derivatives of the sampling that a spatial transformer does.
    if (entry.type != "TorchSTN") types.push_back(entry.type);
  }
  return types;
}

std::shared_ptr<const TaskDerivatives> MakeTaskDerivatives(const std::string& who,
                                                           const Config& task,
                                                           const TaskResources& resources) {
  const std::vector<std::string> types = TypesWithDerivatives();
  Require(std::ranges::find(types, task.Type()) != types.end(),
          "{}: a task of type '{}' cannot be differentiated twice, which gradients through "
          "unrolled training need; types that can: {}",
          who, task.Type(), fmt::join(types, ", "));
  return OpenTorchModule(who).task_derivatives(CurrentIsa(), task, resources);
}

std::shared_ptr<const DifferentiableOptimizer> MakeDifferentiableOptimizer(
    const std::string& who, const ScriptModule& script) {
  return OpenTorchModule(who).differentiable_optimizer(CurrentIsa(), script);
}

}  // namespace lopt
