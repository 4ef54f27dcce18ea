#include "lopt/learner/run/run_directory.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/option_words.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/base/tensorboard.h"

namespace lopt {
namespace {

constexpr std::array<std::string_view, 10> kFiles = {
    "manifest.json",     "config.json",        "metrics.jsonl",
    "throughput.jsonl",  RunDirectory::kTheta, "theta_best.safetensors",
    "best.json",         "windows.bin",        "status",
    RunDirectory::kModel};
constexpr std::string_view kCheckpoints = "checkpoints";

}  // namespace

bool RunDirectory::HoldsRun() const {
  return Exists(ManifestPath()) || Exists(path_ + "/config.json") || Exists(CheckpointPath());
}

void RunDirectory::RequireNoRun() const {
  Require(!HoldsRun(),
          "{} holds a run already: resume it ({}), replace it ({}), or choose another directory",
          path_, FlagWords("resume"), FlagWords("overwrite"));
}

void RunDirectory::Create() const { MakeOutputDirectory(path_); }

void RunDirectory::RemoveRun() const {
  RemoveMatching(path_, [](std::string_view name) { return name == kCheckpoints; });
  const std::vector<std::string> events = EventFiles(path_);
  RemoveMatching(path_, [&](std::string_view name) {
    return std::ranges::find(events, name) != events.end() ||
           std::ranges::find(kFiles, name) != kFiles.end();
  });
  RemoveUnfinished();
}

void RunDirectory::RemoveUnfinished() const {
  RemoveMatching(path_, [](std::string_view name) {
    return std::ranges::any_of(kFiles,
                               [&](std::string_view file) { return IsUnfinished(name, file); });
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
