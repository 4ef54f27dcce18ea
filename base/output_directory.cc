#include "lopt/base/output_directory.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {

namespace fs = std::filesystem;

void MakeOutputDirectory(const std::string& path) {
  FileSystem& files = Environment::Current().files();
  fs::path there = AbsolutePath(path);
  if (!there.has_filename()) there = there.parent_path();
  std::vector<fs::path> missing;
  for (; !Exists(there) && there.has_relative_path(); there = there.parent_path()) {
    missing.push_back(there);
  }
  // A directory's name is flushed before anything is made in it, or a crash may take both. One that
  // is there and empty may have been left without by a process that was killed.
  std::vector<std::string> names;
  if (there.has_relative_path() && files.List(there, &names) == 0 && names.empty() &&
      files.MayWrite(there.parent_path()) == 0) {
    SyncDirectory(there.parent_path());
  }
  std::ranges::reverse(missing);
  for (const fs::path& made : missing) {
    MakeDirectories(made);
    SyncDirectory(made.parent_path());
  }
  Require(IsDirectory(path), "{} is a file; wanted an output directory", path);
  const int error = -files.MayWrite(path);
  if (error != 0) Fail("cannot write to the output directory {}: {}", path, SystemReason(error));
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
