#include "base/output_directory.h"

#include <filesystem>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"

namespace lopt {

namespace fs = std::filesystem;

void MakeOutputDirectory(const std::string& path) {
  std::vector<fs::path> hold_new_names;  // to be flushed, or a crash may take what is made here
  for (fs::path made = fs::absolute(path); !Exists(made) && made.has_relative_path();
       made = made.parent_path()) {
    hold_new_names.push_back(made.parent_path());
  }
  MakeDirectories(path);
  for (const fs::path& directory : hold_new_names) {
    SyncDirectory(directory);
  }
  const int error = -Environment::Current().files().MayWrite(path);
  Require(error == 0, "cannot write to the output directory {}: {}", path, SystemReason(error));
}

void RemoveMatching(const std::string& directory,
                    const std::function<bool(std::string_view name)>& matches) {
  for (const std::string& name : ListDirectory(directory)) {
    if (matches(name)) RemoveAll(directory + "/" + name);
  }
}

bool IsUnfinished(std::string_view name, std::string_view file) {
  return name.starts_with(file) && name.substr(file.size()).starts_with(".tmp.");
}

}  // namespace lopt
