#include "lopt/tasks/torch/torch_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lopt/base/abi.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/program_files.h"

namespace lopt {
namespace {

constexpr const char* kFileName = "liblopt_torch_module.so";
constexpr const char* kModuleDirectory = "LOPT_MODULE_DIR";

// The module that is to be opened, and of those that are not, why.
struct Search {
  std::optional<std::string> path;
  std::vector<std::string> refused;
};

Search SearchTorchModule() {
  Search search;
  const bool told = std::getenv(kModuleDirectory) != nullptr;
  for (const std::string& directory : TorchModuleDirectories()) {
    const std::string path = AbsolutePath(std::filesystem::path(directory) / kFileName);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    const std::string why = told ? "" : WhoElseMayChange(path);
    if (why.empty()) {
      search.path = path;
      break;
    }
    search.refused.push_back(why);
  }
  return search;
}

// Why the files that were found are not opened, as the end of a sentence.
std::string Refusal(const Search& search) {
  return fmt::format(
      "not opened, since {} (only root, this user and the owner of the program are "
      "trusted; {} names a directory that is trusted besides)",
      fmt::join(search.refused, "; "), kModuleDirectory);
}

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

std::vector<std::string> TorchModuleDirectories() {
  if (const char* directory = std::getenv(kModuleDirectory); directory != nullptr) {
    return {directory};
  }
  std::vector<std::string> directories;
  const auto add = [&](const std::filesystem::path& directory) {
    if (std::find(directories.begin(), directories.end(), directory) == directories.end()) {
      directories.push_back(directory);
    }
  };
  if (const auto program = ProgramDirectory()) {
    add(*program);
    add(program->parent_path() / LOPT_LIBDIR / "lopt");
  }
  if (const auto library = OwnLibraryDirectory()) {
    add(*library);
    add(*library / "lopt");
  }
  if (std::string_view(LOPT_INSTALLED_MODULE_DIR) != "") add(LOPT_INSTALLED_MODULE_DIR);
  return directories;
}

std::optional<std::string> FindTorchModule() { return SearchTorchModule().path; }

std::string WhyNoTorchModule() {
  const Search search = SearchTorchModule();
  if (search.path) return "";
  if (!search.refused.empty()) return Refusal(search);
  return fmt::format(
      "not installed; once LibTorch is (apt-get install libtorch-dev), cmake --preset release && "
      "cmake --build build --target lopt_torch_module builds it in a checkout; looked in: {}",
      fmt::join(TorchModuleDirectories(), ", "));
}

const TorchModule& OpenTorchModule(std::string_view who) {
  const std::optional<std::string> path = FindTorchModule();
  if (!path) {
    Fail("{} needs the torch module {}, which is {}", who, kFileName, WhyNoTorchModule());
  }
  RequireFile(*path, "cannot open the torch module");
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
  const Search search = SearchTorchModule();
  if (search.path) return "";
  const nlohmann::ordered_json torch_task = FirstTorchTask(task);
  if (torch_task.is_null()) return "";
  return fmt::format(
      "{} needs the torch module {}, which is {}", torch_task["type"].get<std::string>(), kFileName,
      search.refused.empty() ? "not installed (Debian: libtorch-dev)" : Refusal(search));
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
