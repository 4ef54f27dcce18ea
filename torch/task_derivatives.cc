#include "lopt/torch/task_derivatives.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/torch/registry.h"
#include "lopt/torch/torch_task.h"

namespace lopt {
namespace {

// The counterpart of a quadratic. Only its derivatives are asked for, so its start is any.
std::shared_ptr<const TaskDerivatives> Quadratic(const Config& config, bool target,
                                                 TorchTaskFamily::LossFunction loss) {
  const int64_t dim = ReadOptions<QuadraticOptions>(config).dim;
  return std::make_shared<TorchTaskFamily>(
      [dim](Key, const torch::Tensor&) -> NamedTensors {
        return {{"x", torch::zeros({dim})}};
      },
      std::move(loss), TaskParts{.config = target ? Layout({{"target", {dim}}}) : Layout()});
}

}  // namespace

std::shared_ptr<const TaskDerivatives> TorchTaskDerivatives(const Config& task,
                                                            const TaskResources& resources) {
  const std::string type = task.Type();
  if (type == "QuadraticTask") {
    return Quadratic(task, false,
                     [](const TorchEvaluation& e) { return e.params[0].square().sum(-1); });
  }
  if (type == "FixedDimQuadraticFamily") {
    return Quadratic(task, true, [](const TorchEvaluation& e) {
      return (e.params[0] - e.config).square().sum(-1);
    });
  }
  if (type == "LogQuadraticTask") {
    return Quadratic(task, false,
                     [](const TorchEvaluation& e) { return e.params[0].square().sum(-1).log(); });
  }
  // LibTorch 1.13 gives wrong numbers.
  Require(type != "ByteLM" || task.json().value("body", "") != "transformer",
          "task 'ByteLM': body 'transformer' cannot be differentiated twice; the others can");
  const bool has_twin = type == "ImageMLP" || type == "ImageConv";
  const auto family =
      TorchTaskRegistry().Make(has_twin ? task.With("type", "Torch" + type) : task, resources);
  auto derivatives = std::dynamic_pointer_cast<const TaskDerivatives>(family);
  Require(derivatives != nullptr, "task '{}' has no derivatives", type);
  return derivatives;
}

}  // namespace lopt
