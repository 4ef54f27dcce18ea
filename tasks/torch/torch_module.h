#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/module.h"
#include "lopt/base/script_module.h"
#include "lopt/base/tensorboard.h"
#include "lopt/tasks/derivatives.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What needs LibTorch lives in a module, which is opened when a task of such a type is made, a file
// for PyTorch is written or a training is differentiated.
inline constexpr ModuleKind kTorchModule = {
    .key = "torch", .library = "LibTorch", .packages = "libtorch-dev"};

// A TorchScript module, as torch::jit::load and torch.jit.load read it.
struct TorchScriptFile {
  std::string name;  // of the module's class
  ScriptModule module;
  std::map<std::string, std::string> extra_files;  // stored beside it in the archive
};

// What the module offers. It holds its own copies of base/ and tasks/, so state of the process (the
// pinned instruction set) is handed over in each call that needs it.
struct TorchModule {
  const char* build;          // LOPT_ABI where the module was compiled; always the first member
  const char* torch_version;  // of LibTorch: "1.13.1"
  const TaskTypes& (*tasks)(std::string_view isa);  // its tasks, on this instruction set
  void (*write_torch_script)(const std::string& path, const TorchScriptFile& file);
  // float32 tensors, as torch.load reads a state_dict.
  void (*write_state_dict)(const std::string& path, const NamedArrays& tensors);
  // See tasks/derivatives.h, which checks the type.
  std::shared_ptr<const TaskDerivatives> (*task_derivatives)(std::string_view isa,
                                                             const Config& task,
                                                             const TaskResources& resources);
  std::shared_ptr<const DifferentiableOptimizer> (*differentiable_optimizer)(
      std::string_view isa, const ScriptModule& script);
  // TorchTaskFamily::Graph of one of its tasks.
  std::vector<GraphNode> (*task_graph)(std::string_view isa, const Config& task,
                                       const TaskResources& resources);
};

// Opens the module on behalf of `who`. Throws Error as OpenModule does. Thread-safe.
const TorchModule& OpenTorchModule(std::string_view who);

// A task that the module makes. Throws Error as OpenTorchModule does and as the task's maker does.
std::shared_ptr<const TaskFamily> MakeTorchTask(const Config& config,
                                                const TaskResources& resources);

// Adds a type that is made so (see torch/task_type.h). Opens nothing.
template <class Options>
void AddTorchType(TaskTypes* types, const std::string& type, std::string summary) {
  types->Add<Options>(type, std::move(summary),
                      [type](const Options& options, const TaskResources& resources) {
                        return MakeTorchTask(WriteOptions(type, options), resources);
                      });
}

// Why this task cannot be made without the torch module: its type, or one in its config, is made by
// the module, which is not installed. Empty: the module is there, or is not needed. Opens nothing.
std::string MissingTorchModule(const Config& task);

// TorchTaskFamily::Graph of the first task that the module makes of those in this config, or the
// config itself; empty if there is none, then nothing is opened. Throws Error as MakeTorchTask does
// and as an evaluation does.
std::vector<GraphNode> GraphOfTorchTask(const Config& config, const TaskResources& resources);

namespace torch_types {
// Adds the types of all files in torch/tasks/, whether or not the module is there.
void AddAll(TaskTypes* types);
}  // namespace torch_types

}  // namespace lopt
