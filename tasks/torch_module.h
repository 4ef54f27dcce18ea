#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/registry.h"
#include "tasks/task_family.h"

namespace lopt {

class ImageData;
struct ImageMlpOptions;

// Tasks that need LibTorch live in a shared library of their own, liblopt_torch_module.so, which is
// opened when a task of such a type is made. It is never closed.

// What the module offers. It holds its own copies of base/ and tasks/, so state of the process (the
// pinned instruction set) is handed over in each call that needs it.
struct TorchModule {
  const char* build;          // equals TorchModuleBuild() of who opens it; always the first member
  const char* torch_version;  // of LibTorch: "1.13.1"
  std::shared_ptr<const TaskFamily> (*make_image_mlp)(const ImageMlpOptions& options,
                                                      std::shared_ptr<const ImageData> data,
                                                      std::string_view isa);
};

// The only symbol that the module exports, of type `const TorchModule*()`.
inline constexpr const char* kTorchModuleEntry = "lopt_torch_module";

// The project's version and the compiler's: both sides of the module must have been built alike.
const char* TorchModuleBuild();

// Where the module is looked for, in order: the directory that the environment variable
// LOPT_MODULE_DIR names, if it is set, and nowhere else; otherwise the directory of the running
// program, ../lib/lopt beside it, and the directory it was built in.
std::vector<std::string> TorchModuleDirectories();

// The path of the module's file; nothing if it is not installed. Loads nothing.
std::optional<std::string> FindTorchModule();

// Opens the module. `who` needs it, for messages ("task 'TorchImageMLP'"). Throws Error if it is
// not installed (lists where it was looked for), cannot be loaded, or was built otherwise.
// Thread-safe.
const TorchModule& OpenTorchModule(const std::string& who);

// Adds the types that the module makes.
void AddTorchTasks(Registry<TaskFamily, const TaskResources&>* types);

}  // namespace lopt
