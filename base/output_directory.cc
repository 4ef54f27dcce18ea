#include "base/output_directory.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace lopt {

namespace fs = std::filesystem;

void MakeOutputDirectory(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> hold_new_names;  // to be flushed, or a crash may take what is made here
  for (fs::path made = fs::absolute(path); !fs::exists(made, error) && made.has_relative_path();
       made = made.parent_path()) {
    hold_new_names.push_back(made.parent_path());
  }
  fs::create_directories(path, error);
  Require(!error, "cannot create the output directory {}: {}", path, error.message());
  for (const fs::path& directory : hold_new_names) {
    SyncDirectory(directory);
  }
  const bool writable = ::access(path.c_str(), W_OK | X_OK) == 0;
  Require(writable, "cannot write to the output directory {}: {}", path, SystemReason(errno));
}

void RemoveMatching(const std::string& directory,
                    const std::function<bool(std::string_view name)>& matches) {
  std::vector<fs::path> matching;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (matches(entry.path().filename().string())) matching.push_back(entry.path());
  }
  for (const fs::path& path : matching) {
    std::error_code error;
    fs::remove_all(path, error);
    Require(!error, "cannot remove {}: {}", path.string(), error.message());
  }
}

bool IsUnfinished(std::string_view name, std::string_view file) {
  return name.starts_with(file) && name.substr(file.size()).starts_with(".tmp.");
}

}  // namespace lopt
