#include "lopt/base/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lopt/base/abi.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/program_files.h"

namespace lopt {
namespace {

constexpr const char* kModuleDirectory = "LOPT_MODULE_DIR";

// The directory that the user names; null for none.
const char* NamedDirectory() {
  const char* const named = std::getenv(kModuleDirectory);
  return named != nullptr && *named != '\0' ? named : nullptr;
}

// The module that is to be opened, and of those that are not, why.
struct ModuleSearch {
  std::optional<std::string> path;
  std::vector<std::string> refused;
};

ModuleSearch SearchModule(const ModuleKind& module) {
  ModuleSearch search;
  const bool told = NamedDirectory() != nullptr;
  for (const std::string& directory : ModuleDirectories()) {
    const std::string path =
        AbsolutePath(std::filesystem::path(directory) / ModuleFileName(module));
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

// `not_installed` unless files were found that are not opened: then, why not.
std::string WhyNone(const ModuleSearch& search, const std::string& not_installed) {
  if (search.path) return "";
  if (search.refused.empty()) return not_installed;
  return fmt::format(
      "not opened, since {} (only root, this user and the owners of the program and of its "
      "libraries are trusted; {} names a directory that is trusted besides)",
      fmt::join(search.refused, "; "), kModuleDirectory);
}

const char* LoaderError() {
  const char* const error = dlerror();
  return error != nullptr ? error : "unknown error";
}

}  // namespace

std::string ModuleFileName(const ModuleKind& module) {
  return fmt::format("liblopt_{}_module.so", module.key);
}

std::vector<std::string> ModuleDirectories() {
  if (const char* const directory = NamedDirectory()) return {directory};
  std::vector<std::string> directories;
  const auto add = [&](const std::filesystem::path& directory) {
    if (std::find(directories.begin(), directories.end(), directory) == directories.end()) {
      directories.push_back(directory);
    }
  };
  if (const auto library = OwnLibraryDirectory()) {
    add(*library);
    add(*library / "lopt");
  }
  if (const auto program = ProgramDirectory()) {
    add(*program);
    add(program->parent_path() / LOPT_LIBDIR / "lopt");
  }
  if (std::string_view(LOPT_INSTALLED_MODULE_DIR) != "") add(LOPT_INSTALLED_MODULE_DIR);
  return directories;
}

std::optional<std::string> FindModule(const ModuleKind& module) {
  return SearchModule(module).path;
}

std::string WhyNoModule(const ModuleKind& module) {
  return WhyNone(
      SearchModule(module),
      fmt::format("not installed; once {} is (apt-get install {}), cmake --preset release && "
                  "cmake --build build --target lopt_{}_module builds it in a checkout; looked in: "
                  "{}",
                  module.library, module.packages, module.key,
                  fmt::join(ModuleDirectories(), ", ")));
}

std::string ShortWhyNoModule(const ModuleKind& module) {
  return WhyNone(SearchModule(module), fmt::format("not installed (Debian: {})", module.packages));
}

const void* OpenModule(const ModuleKind& module, std::string_view who) {
  const std::optional<std::string> path = FindModule(module);
  if (!path) {
    Fail("{} needs the {} module {}, which is {}", who, module.key, ModuleFileName(module),
         WhyNoModule(module));
  }
  RequireFile(*path, fmt::format("cannot open the {} module", module.key));
  // Opening it again gives the same handle.
  void* const handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  Require(handle != nullptr, "{} needs the {} module {}, which cannot be loaded: {}", who,
          module.key, *path, handle != nullptr ? "" : LoaderError());
  void* const entry = dlsym(handle, fmt::format("lopt_{}_module", module.key).c_str());
  Require(entry != nullptr, "{} needs the {} module {}, which is another file of that name: {}",
          who, module.key, *path, entry != nullptr ? "" : LoaderError());
  const void* const table = reinterpret_cast<const void* (*)()>(entry)();
  const std::string_view build = *static_cast<const char* const*>(table);
  Require(build == LOPT_ABI,
          "{} needs the {} module {}, which is built for another program than this; build it "
          "again: {} there, {} here",
          who, module.key, *path, build, LOPT_ABI);
  return table;
}

}  // namespace lopt
