#include <torch/version.h>

#include "lopt/base/abi.h"
#include "lopt/base/isa.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/torch/differentiable_optimizer.h"
#include "lopt/torch/registry.h"
#include "lopt/torch/state_dict_file.h"
#include "lopt/torch/task_derivatives.h"
#include "lopt/torch/task_graph.h"
#include "lopt/torch/torch_script_file.h"

namespace {

void UseIsa(std::string_view isa) {
  if (lopt::CurrentIsa() != isa) lopt::PinIsa(isa);
}

const lopt::TaskTypes& Tasks(std::string_view isa) {
  UseIsa(isa);
  return lopt::TorchTaskRegistry();
}

std::shared_ptr<const lopt::TaskDerivatives> Derivatives(std::string_view isa,
                                                         const lopt::Config& task,
                                                         const lopt::TaskResources& resources) {
  UseIsa(isa);
  return lopt::TorchTaskDerivatives(task, resources);
}

std::shared_ptr<const lopt::DifferentiableOptimizer> Optimizer(std::string_view isa,
                                                               const lopt::ScriptModule& script) {
  UseIsa(isa);
  return lopt::TorchDifferentiableOptimizer(script);
}

std::vector<lopt::GraphNode> Graph(std::string_view isa, const lopt::Config& task,
                                   const lopt::TaskResources& resources) {
  UseIsa(isa);
  return lopt::TorchTaskGraph(task, resources);
}

}  // namespace

extern "C" const lopt::TorchModule* lopt_torch_module() {
  static const lopt::TorchModule module{.build = LOPT_ABI,
                                        .torch_version = TORCH_VERSION,
                                        .tasks = Tasks,
                                        .write_torch_script = lopt::WriteTorchScriptFile,
                                        .write_state_dict = lopt::WriteStateDictFile,
                                        .task_derivatives = Derivatives,
                                        .differentiable_optimizer = Optimizer,
                                        .task_graph = Graph};
  return &module;
}
