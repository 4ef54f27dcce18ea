#include "lopt/tools/trained_theta.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/program_files.h"

namespace lopt {

namespace {

// In the Python package, beside the program as it is installed, and as it is built.
std::vector<std::string> TrainedDirectories() {
  std::vector<std::string> directories;
  if (const auto library = OwnLibraryDirectory()) directories.push_back(*library / "trained");
  if (const auto program = ProgramDirectory()) {
    directories.push_back(program->parent_path() / "share/lopt/trained");
    directories.push_back(*program / "share/lopt/trained");
  }
  return directories;
}

// Empty if there are none.
std::vector<std::string> FilesOfFirst(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    if (!IsDirectory(directory)) continue;
    std::vector<std::string> files;
    for (const std::string& name : ListDirectory(directory)) {
      if (name.ends_with(".safetensors")) {
        files.push_back(std::filesystem::path(directory) / name);
      }
    }
    if (!files.empty()) return files;
  }
  return {};
}

}  // namespace

std::vector<std::string> TrainedFiles(const std::optional<std::string>& told) {
  const auto directories = told ? std::vector<std::string>{*told} : TrainedDirectories();
  std::vector<std::string> files = FilesOfFirst(directories);
  Require(!files.empty(),
          "no theta file, *.safetensors, is in {} (--trained names another directory)",
          fmt::join(directories, ", "));
  return files;
}

std::vector<std::string> TrainedNames() {
  std::vector<std::string> names;
  for (const std::string& file : FilesOfFirst(TrainedDirectories())) {
    names.push_back(std::filesystem::path(file).stem());
  }
  std::ranges::sort(names);
  return names;
}

std::string ThetaPath(const std::string& named) {
  if (named.find_first_of("/.") != std::string::npos) return named;
  const std::vector<std::string> directories = TrainedDirectories();
  for (const std::string& file : FilesOfFirst(directories)) {
    if (std::filesystem::path(file).stem() == named) return file;
  }
  if (Exists(named)) return named;
  const std::vector<std::string> names = TrainedNames();
  if (names.empty()) {
    Fail("{} is no file, and the trained optimizers of lopt are not in {}", named,
         fmt::join(directories, ", "));
  }
  Fail("{} is neither a file nor a trained optimizer of lopt; these are {}{}", named,
       fmt::join(names, ", "), DidYouMean(named, names));
}

std::string ThetaName(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  if (name != "theta") return name;
  return std::filesystem::path(AbsolutePath(path)).parent_path().filename().string();
}

bool ComesWithLopt(std::span<const std::byte> content) {
  return std::ranges::any_of(FilesOfFirst(TrainedDirectories()), [&](const std::string& file) {
    return std::ranges::equal(ReadFile(file), content);
  });
}

}  // namespace lopt
