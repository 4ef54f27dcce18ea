#include "tasks/torch_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/abi.h"
#include "base/error.h"
#include "base/isa.h"
#include "base/platform.h"

namespace lopt {
namespace {

constexpr const char* kFileName = "liblopt_torch_module.so";

// The first type in a config, or in a config in it, that the module makes; empty: none.
std::string FirstTorchType(const nlohmann::ordered_json& json, const TaskTypes& torch) {
  if (json.is_object() && json.contains("type") && json["type"].is_string()) {
    auto type = json["type"].get<std::string>();
    const auto has_type = [&](const TypeEntry& entry) { return entry.type == type; };
    if (std::ranges::any_of(torch.table().entries(), has_type)) return type;
  }
  if (json.is_structured()) {
    for (const auto& part : json) {
      if (std::string type = FirstTorchType(part, torch); !type.empty()) return type;
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> TorchModuleDirectories() {
  if (const char* directory = std::getenv("LOPT_MODULE_DIR"); directory != nullptr) {
    return {directory};
  }
  std::vector<std::string> directories;
  const std::filesystem::path program = ProgramPath();
  if (!program.empty()) {
    const auto directory = program.parent_path();
    directories = {directory, directory.parent_path() / LOPT_LIBDIR / "lopt"};
  }
  directories.emplace_back(LOPT_FULL_LIBDIR "/lopt");
  directories.emplace_back(LOPT_MODULE_BUILD_DIR);
  return directories;
}

std::optional<std::string> FindTorchModule() {
  for (const std::string& directory : TorchModuleDirectories()) {
    const auto path = std::filesystem::path(directory) / kFileName;
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      return std::filesystem::absolute(path);
    }
  }
  return std::nullopt;
}

const TorchModule& OpenTorchModule(const std::string& who) {
  const std::optional<std::string> path = FindTorchModule();
  if (!path) {
    Fail(
        "{} needs the torch module {}, which is not installed (it is built where LibTorch is "
        "found; Debian: libtorch-dev); looked in: {}",
        who, kFileName, fmt::join(TorchModuleDirectories(), ", "));
  }
  const auto last_error = [] {
    const char* error = dlerror();
    return error != nullptr ? error : "unknown error";
  };
  // Opening it again gives the same handle, so there is nothing to keep.
  void* handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  Require(handle != nullptr, "{} needs the torch module {}, which cannot be loaded: {}", who, *path,
          handle != nullptr ? "" : last_error());
  void* entry = dlsym(handle, kTorchModuleEntry);
  Require(entry != nullptr, "{} needs the torch module {}, which is another file of that name: {}",
          who, *path, entry != nullptr ? "" : last_error());
  const TorchModule* module = reinterpret_cast<const TorchModule* (*)()>(entry)();
  Require(std::string_view(module->build) == LOPT_ABI,
          "{} needs the torch module {}, which is built for another program than this; build it "
          "again: {} there, {} here",
          who, *path, module->build, LOPT_ABI);
  return *module;
}

std::string MissingTorchModule(const Config& task) {
  if (FindTorchModule()) return "";
  TaskTypes torch("task");
  torch_types::AddAll(&torch);
  const std::string type = FirstTorchType(task.json(), torch);
  if (type.empty()) return "";
  return fmt::format("{} needs the torch module {}, which is not installed (Debian: libtorch-dev)",
                     type, kFileName);
}

std::shared_ptr<const TaskFamily> MakeTorchTask(const Config& config,
                                                const TaskResources& resources) {
  const TorchModule& module = OpenTorchModule("task '" + config.Type() + "'");
  return module.tasks(CurrentIsa()).Make(config, resources);
}

}  // namespace lopt
