#include "lopt/learner/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

const char* LastLoaderError() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

// Calls f(registry of the program, registry of the plug-in) for every kind of type.
template <class Function>
void ForEachKind(const PluginTypes& types, Function&& f) {
  f(TaskRegistry(), types.tasks);
  f(AugmentationRegistry(), types.augmentations);
  f(OptimizerRegistry(), types.optimizers);
  f(EstimatorRegistry(), types.estimators);
  f(ScheduleRegistry(), types.schedules);
}

// The entry of the plug-in in this file, whose ABI is this program's.
const Plugin& OpenPlugin(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    Fail("it cannot be loaded: {}; wanted: a shared library built for {}", LastLoaderError(),
         LOPT_ABI);
  }
  void* entry = dlsym(handle, kPluginEntry);
  Require(entry != nullptr,
          "it has no function {}; LOPT_PLUGIN (learner/plugin.h) defines that of a plug-in",
          kPluginEntry);
  const Plugin& plugin = *reinterpret_cast<const Plugin* (*)()>(entry)();
  Require(std::string_view(plugin.abi) == LOPT_ABI,
          "it is built for another program than this; build it again: {} there, {} here",
          plugin.abi, LOPT_ABI);
  return plugin;
}

bool IsAdded(const std::string& file) {
  bool added = false;
  ForEachKind({}, [&](const auto& program, const auto&) {
    added |= std::ranges::find(program.table().entries(), file, &TypeEntry::plugin) !=
             program.table().entries().end();
  });
  return added;
}

void AddPlugin(const std::string& path) {
  std::error_code error;
  const std::string file = fs::canonical(path, error);
  Require(!error, "it cannot be opened: {}", error.message());
  RequireFile(file, "cannot open");
  if (access(file.c_str(), R_OK) != 0) Fail("it cannot be opened: {}", std::strerror(errno));
  if (IsAdded(file)) return;
  const Plugin& plugin = OpenPlugin(file);
  PluginTypes types;
  try {
    plugin.add(types);
  } catch (const std::exception& thrown) {
    Fail("registering its types failed: {}", thrown.what());
  } catch (...) {
    Fail("registering its types failed with something that is no std::exception");
  }
  ForEachKind(types, [](const auto& program, const auto& added) { program.CheckAreNew(added); });
  ForEachKind(types, [&](auto& program, const auto& added) { program.AddAll(added, file); });
}

}  // namespace

void LoadPlugin(const std::string& path) {
  try {
    AddPlugin(path);
  } catch (const Error& error) {
    Fail("plug-in {}: {}", path, error.what());
  }
}

}  // namespace lopt
