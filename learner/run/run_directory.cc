#include "learner/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"

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
  return fs::exists(path_ + "/manifest.json") || fs::exists(path_ + "/config.json") ||
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
  nlohmann::ordered_json json = {
      {"format", "lopt run 1"},      {"status", manifest.status},
      {"updates", manifest.updates}, {"version", manifest.version},
      {"isa", manifest.isa},         {"seed", manifest.seed},
      {"threads", manifest.threads}, {"init_theta", manifest.init_theta}};
  if (!manifest.error.empty()) {
    json["error"] = manifest.error;
  }
  WriteTextFile(path_ + "/manifest.json", json.dump(2) + "\n");
}

RunManifest RunDirectory::ReadManifest() const {
  const std::string path = path_ + "/manifest.json";
  try {
    const auto json = nlohmann::json::parse(ReadTextFile(path));
    return {.status = json.at("status"),
            .error = json.value("error", ""),
            .version = json.at("version"),
            .isa = json.at("isa"),
            .init_theta = json.at("init_theta"),
            .seed = json.at("seed"),
            .threads = json.at("threads"),
            .updates = json.at("updates")};
  } catch (const nlohmann::json::exception& error) {
    Fail("{} is damaged: {}", path, error.what());
  }
}

}  // namespace lopt
