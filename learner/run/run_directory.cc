#include "lopt/learner/run/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
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

constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kCheckpoints = "checkpoints";
constexpr std::string_view kStatus = "status";
constexpr std::string_view kJournal = "windows.bin";

// Entries of a run. The checkpoints and the manifest, by which a run is known, are removed last.
std::vector<std::string_view> EntriesOf(std::optional<RunKind> kind) {
  std::vector<std::string_view> entries = {"config.json", "metrics.jsonl", "throughput.jsonl",
                                           kStatus};
  if (kind != RunKind::kTraining) {
    entries.insert(entries.end(),
                   {RunDirectory::kTheta, "theta_best.safetensors", "best.json", kJournal});
  }
  if (kind != RunKind::kMetaTraining) entries.emplace_back(RunDirectory::kModel);
  entries.insert(entries.end(), {kCheckpoints, kManifest});
  return entries;
}

constexpr std::string_view kMetaTrainingWords = "a meta-training run";
constexpr std::string_view kTrainingWords = "a training run";

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
  if (HoldsRecord(directory.ManifestPath(), "lopt evaluation")) return "an evaluation";
  if (Exists(directory.ModelPath())) return kTrainingWords;
  if (Exists(path + "/fit.json")) return "a fit";
  if (Exists(path + "/search.pickle")) return "a search of lopt.cma_es";
  if (Exists(directory.ThetaPath())) return kMetaTrainingWords;
  return "";
}

}  // namespace

bool RunDirectory::HoldsRun() const {
  return Exists(ManifestPath()) || Exists(path_ + "/config.json") || Exists(CheckpointPath());
}

bool RunDirectory::HoldsRunOfLopt() const {
  return HoldsRecord(ManifestPath(), "lopt run") || Exists(JournalPath()) ||
         AnyCheckpointHas(CheckpointPath(), kCheckpointLearner) ||
         AnyCheckpointHas(CheckpointPath(), kCheckpointState);
}

void RunDirectory::RequireNoOther() const {
  if (!kind_) return;
  const std::string_view own = *kind_ == RunKind::kTraining ? kTrainingWords : kMetaTrainingWords;
  const std::string_view found = WordsOfContents(*this);
  Require(found.empty() || found == own, "{} holds {}; choose another directory", path_, found);
  if (HoldsRunOfLopt()) return;
  for (const std::string_view entry : EntriesOf(kind_)) {
    // Launches of runs that never began leave a status.
    Require(entry == kStatus || !Exists(fmt::format("{}/{}", path_, entry)),
            "{} holds {}, which is of no run of lopt; choose another directory", path_, entry);
  }
}

void RunDirectory::RequireNoRun() const {
  RequireNoOther();
  Require(!HoldsRun(),
          "{} holds a run already: resume it ({}), replace it ({}), or choose another directory",
          path_, FlagWords("resume"), FlagWords("overwrite"));
}

void RunDirectory::Create() const { MakeOutputDirectory(path_); }

void RunDirectory::RemoveRun() const {
  RequireNoOther();
  if (HoldsRunOfLopt()) {
    const std::vector<std::string> events = EventFiles(path_);
    RemoveMatching(path_, [&](std::string_view name) {
      return std::ranges::find(events, name) != events.end();
    });
    for (const std::string_view entry : EntriesOf(kind_)) {
      RemoveAll(fmt::format("{}/{}", path_, entry));
    }
  }
  RemoveUnfinished();
}

void RunDirectory::RemoveUnfinished() const {
  const std::vector<std::string_view> entries = EntriesOf(kind_);
  RemoveMatching(path_, [&](std::string_view name) {
    return std::ranges::any_of(entries,
                               [&](std::string_view entry) { return IsUnfinished(name, entry); });
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
