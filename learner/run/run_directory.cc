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
#include "lopt/learner/run/checkpoint_files.h"

namespace lopt {
namespace {

constexpr std::array<std::string_view, 10> kFiles = {
    "manifest.json",     "config.json",        "metrics.jsonl",
    "throughput.jsonl",  RunDirectory::kTheta, "theta_best.safetensors",
    "best.json",         "windows.bin",        "status",
    RunDirectory::kModel};
constexpr std::string_view kCheckpoints = "checkpoints";

constexpr std::string_view kMetaTrainingWords = "a meta-training run";
constexpr std::string_view kTrainingWords = "a training run";
constexpr std::string_view kEvaluationWords = "an evaluation";

bool AnyCheckpointHas(const std::string& checkpoints, const char* file) {
  if (!IsDirectory(checkpoints)) return false;
  return std::ranges::any_of(ListDirectory(checkpoints), [&](const std::string& name) {
    return StepOfName(name).has_value() && Exists(checkpoints + "/" + name + "/" + file);
  });
}

// What the directory holds; empty where no file tells. The first to tell are files that nobody puts
// beside a run of another kind.
std::string_view WordsOfContents(const RunDirectory& directory) {
  const std::string checkpoints = directory.CheckpointPath();
  const std::string& path = directory.path();
  if (AnyCheckpointHas(checkpoints, kCheckpointLearner)) return kMetaTrainingWords;
  if (AnyCheckpointHas(checkpoints, kCheckpointState)) return kTrainingWords;
  if (Exists(directory.JournalPath())) return kMetaTrainingWords;
  if (Exists(path + "/results.jsonl")) return kEvaluationWords;
  if (Exists(directory.ModelPath())) return kTrainingWords;
  if (Exists(path + "/fit.json")) return "a fit";
  if (Exists(path + "/search.pickle")) return "a search of lopt.cma_es";
  if (Exists(directory.ThetaPath())) return kMetaTrainingWords;
  if (IsDirectory(path + "/thetas")) return kEvaluationWords;
  return "";
}

}  // namespace

bool RunDirectory::HoldsRun() const {
  return Exists(ManifestPath()) || Exists(path_ + "/config.json") || Exists(CheckpointPath());
}

void RunDirectory::RequireNoOther() const {
  if (!kind_) return;
  const std::string_view own = *kind_ == RunKind::kTraining ? kTrainingWords : kMetaTrainingWords;
  const std::string_view found = WordsOfContents(*this);
  Require(found.empty() || found == own, "{} holds {}; choose another directory", path_, found);
}

void RunDirectory::RequireNoRun() const {
  if (HoldsRun()) RequireNoOther();
  Require(!HoldsRun(),
          "{} holds a run already: resume it ({}), replace it ({}), or choose another directory",
          path_, FlagWords("resume"), FlagWords("overwrite"));
}

void RunDirectory::Create() const { MakeOutputDirectory(path_); }

void RunDirectory::RemoveRun() const {
  RequireNoOther();
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
