#include "learner/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/record.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kFiles = {
    "manifest.json",    "config.json",       "metrics.jsonl",
    "throughput.jsonl", "theta.safetensors", "theta_best.safetensors",
    "best.json",        "windows.bin",       "status"};
constexpr std::string_view kEventFiles = "events.out.tfevents.";

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  Require(!error, "cannot remove {}: {}", path.string(), error.message());
}

template <class Match>
void RemoveMatching(const std::string& directory, Match match) {
  std::vector<fs::path> matching;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (match(entry.path().filename().string())) {
      matching.push_back(entry.path());
    }
  }
  for (const fs::path& path : matching) {
    Remove(path);
  }
}

}  // namespace

RunLock::RunLock(const std::string& directory)
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  Require(descriptor_ >= 0, "cannot open the directory {}: {}", directory,
          std::generic_category().message(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    Fail("{} is in use: another process runs in it", directory);
  }
}

RunLock::~RunLock() { ::close(descriptor_); }

bool RunDirectory::HoldsRun() const {
  return fs::exists(ManifestPath()) || fs::exists(path_ + "/config.json") ||
         fs::exists(CheckpointPath());
}

void RunDirectory::Create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  Require(!error, "cannot create the output directory {}: {}", path_, error.message());
  Require(::access(path_.c_str(), W_OK | X_OK) == 0, "cannot write to the output directory {}: {}",
          path_, std::generic_category().message(errno));
}

void RunDirectory::RemoveRun() const {
  Remove(CheckpointPath());
  RemoveMatching(path_, [](const std::string& name) {
    return name.starts_with(kEventFiles) ||
           std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
  });
  RemoveUnfinished();
}

void RunDirectory::RemoveUnfinished() const {
  RemoveMatching(path_, [](const std::string& name) {
    return std::any_of(kFiles.begin(), kFiles.end(), [&](std::string_view file) {
      return name.starts_with(std::string(file) + ".tmp.");
    });
  });
}

void RunDirectory::WriteConfig(const Config& config) const {
  WriteTextFile(path_ + "/config.json", config.Dump() + "\n");
}

void RunDirectory::WriteManifest(const RunManifest& manifest) const {
  WriteRecordFile(ManifestPath(), manifest);
}

RunManifest RunDirectory::ReadManifest() const {
  return ReadRecordFile<RunManifest>(ManifestPath());
}

}  // namespace lopt
