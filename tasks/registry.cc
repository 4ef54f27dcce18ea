#include "tasks/registry.h"

#include <string>
#include <utility>

#include "tasks/image_mlp.h"
#include "tasks/image_task.h"
#include "tasks/quadratic.h"
#include "tasks/torch_module.h"

namespace lopt {
namespace {

template <class Family, class Options>
void AddQuadratic(TaskTypes* types, const std::string& type, std::string summary) {
  types->Add<Options>(type, std::move(summary), [](const Options& options, const TaskResources&) {
    return std::make_shared<Family>(options);
  });
}

TaskTypes BuiltIn() {
  TaskTypes types("task");
  AddQuadratic<QuadraticTask, QuadraticOptions>(&types, "QuadraticTask",
                                                "sum(x^2), started at x ~ N(0, I).");
  AddQuadratic<FixedDimQuadraticFamily, QuadraticOptions>(
      &types, "FixedDimQuadraticFamily",
      "sum((c - x)^2) with a target c ~ N(0, I) per task, started at x ~ N(0, I).");
  AddQuadratic<NoisyQuadraticFamily, NoisyQuadraticOptions>(
      &types, "NoisyQuadraticFamily",
      "sum((scale (center - x))^2) with center ~ N(0, I) and scale ~ 25 U(0, 1) per task and a "
      "noisy gradient.");
  AddQuadratic<LogQuadraticTask, QuadraticOptions>(&types, "LogQuadraticTask",
                                                   "log(sum(x^2)), started at x ~ N(0, I).");
  types.Add<ImageMlpOptions>("ImageMLP", "A multilayer perceptron that classifies small images.",
                             [](const ImageMlpOptions& options, const TaskResources& resources) {
                               return std::make_shared<ImageMlp>(
                                   options, GetImages(options.images, resources));
                             });
  torch_types::AddAll(&types);
  return types;
}

}  // namespace

TaskTypes& TaskRegistry() {
  static TaskTypes types = BuiltIn();
  return types;
}

}  // namespace lopt
