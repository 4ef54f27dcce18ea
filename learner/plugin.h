#pragma once

#include <memory>
#include <string>

#include "lopt/base/abi.h"
#include "lopt/base/registry.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/registry.h"

namespace lopt {

// The types that a plug-in adds to those of the program.
struct PluginTypes {
  TaskTypes tasks{"task"};                                                   // for TaskRegistry()
  Registry<Augmentation, const ImageExtent&> augmentations{"augmentation"};  // of images
  Registry<LearnedOptimizer> optimizers{"learned optimizer"};  // for OptimizerRegistry()
  EstimatorTypes estimators{"estimator"};                      // for EstimatorRegistry()
  // Lengths of episodes.
  Registry<TruncationSchedule> schedules{"truncation schedule"};
};

// What a plug-in exports.
struct Plugin {
  const char* abi;  // LOPT_ABI where the plug-in was compiled; always the first member
  void (*add)(PluginTypes& types);  // adds its types; may throw
};

// The only symbol of a plug-in that is looked up, of type `const Plugin*()`.
inline constexpr const char* kPluginEntry = "lopt_plugin";

// Defines a plug-in's entry function, outside of any namespace and once in a plug-in:
//   LOPT_PLUGIN(types) {
//     types.tasks.Add<MyOptions>("MyTask", "What it is.", [](const MyOptions& o, const auto&) {
//       return std::make_shared<MyTask>(o);
//     });
//   }
// NOLINTBEGIN(bugprone-macro-parentheses)
#define LOPT_PLUGIN(types)                                                        \
  static void LoptPluginAdd(::lopt::PluginTypes& types);                          \
  extern "C" const ::lopt::Plugin* lopt_plugin() {                                \
    static const ::lopt::Plugin plugin = {.abi = LOPT_ABI, .add = LoptPluginAdd}; \
    return &plugin;                                                               \
  }                                                                               \
  static void LoptPluginAdd(::lopt::PluginTypes& types)
// NOLINTEND(bugprone-macro-parentheses)

// Opens a plug-in and adds its types to the registries, before any thread reads them; one that has
// been added already is left as it is. Throws Error that names the file, and adds nothing, if it is
// not there, cannot be loaded, has no entry function or another ABI, throws, or has a type of a
// name that is registered already. It is never closed. Its code takes the symbols of the running
// program, which must export them.
void LoadPlugin(const std::string& path);

}  // namespace lopt
