#include "lopt/learner/run/checkpoint_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/option_words.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/worker_files.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, CheckpointRetention retention,
                                 std::function<void(std::string_view)> on_event)
    : directory_(std::move(directory)), retention_(retention), on_event_(std::move(on_event)) {
  Require(retention.keep_last >= 1, "CheckpointStore: keep_last must be >= 1, got {}",
          retention.keep_last);
}

void CheckpointStore::Event(int64_t step, std::string_view what) const {
  if (on_event_) {
    on_event_(fmt::format("checkpoint:{}:{}", step, what));
  }
}

std::string CheckpointStore::Path(int64_t step) const {
  return fmt::format("{}/{}{:08}", directory_, kCheckpointPrefix, step);
}

std::string CheckpointStore::TemporaryPath(int64_t step) const {
  return fmt::format("{}/{}{}", directory_, kUnfinishedPrefix,
                     fs::path(Path(step)).filename().string());
}

void CheckpointStore::Write(const Checkpoint& checkpoint) const {
  const int64_t step = checkpoint.learner.outer_step;
  const std::string temporary = Begin(step);
  try {
    std::vector<CheckpointFile> files;
    PackWorkers(0, checkpoint.workers, [&](const WorkerBlock& range, std::vector<std::byte> bytes) {
      Event(step, fmt::format("workers:{}", range.first));
      files.push_back(WriteCheckpointFile(temporary, WorkersFileName(range), bytes));
    });
    Commit(checkpoint, files);
  } catch (...) {
    Discard(step);
    throw;
  }
}

std::string CheckpointStore::Begin(int64_t step) const {
  Require(!Exists(Path(step)), "checkpoint {} exists already", Path(step));
  Event(step, "begin");
  MakeOutputDirectory(directory_);
  RemoveAll(TemporaryPath(step));
  MakeDirectories(TemporaryPath(step));
  return TemporaryPath(step);
}

void CheckpointStore::Commit(const Checkpoint& checkpoint,
                             std::span<const CheckpointFile> workers) const {
  const int64_t step = checkpoint.learner.outer_step;
  const std::string temporary = TemporaryPath(step);
  CheckpointManifest manifest{.outer_step = step, .logs = checkpoint.logs};
  for (const CheckpointFile& file : workers) {
    const std::optional<int64_t> bytes = FileSize(temporary + "/" + file.name);
    Require(bytes && static_cast<uint64_t>(*bytes) == file.bytes,
            "checkpoint {}: {} was written but is not here; where the ranks share no file system, "
            "set gather_checkpoints",
            temporary, file.name);
    manifest.Add(file);
    manifest.workers += WorkersOfFile(file.name)->count;
  }
  Event(step, "learner");
  manifest.Add(WriteCheckpointFile(temporary, kCheckpointLearner,
                                   SerializeArrayFile(LearnerToFile(checkpoint))));
  Complete(manifest);
}

void CheckpointStore::Complete(const CheckpointManifest& manifest) const {
  const int64_t step = manifest.outer_step;
  Event(step, "manifest");
  // The last: with its name those of all are flushed.
  WriteRecordFile(TemporaryPath(step) + "/" + kCheckpointManifest, manifest);
  Event(step, "rename");
  RenameFile(TemporaryPath(step), Path(step));
  SyncDirectory(directory_);
  Event(step, "retention");
  ApplyRetention();
  Event(step, "end");
}

void CheckpointStore::Write(const ArraysCheckpoint& checkpoint) const {
  const int64_t step = checkpoint.step;
  const std::string temporary = Begin(step);
  try {
    CheckpointManifest manifest{.outer_step = step, .logs = checkpoint.logs};
    Event(step, "state");
    manifest.Add(
        WriteCheckpointFile(temporary, kCheckpointState, SerializeArrayFile(checkpoint.file)));
    Complete(manifest);
  } catch (...) {
    Discard(step);
    throw;
  }
}

std::optional<ArraysCheckpoint> CheckpointStore::ReadNewestArrays() const {
  std::vector<int64_t> steps = Steps();
  if (steps.empty()) return std::nullopt;
  try {
    return ReadArrays(steps.back());
  } catch (const Error& error) {
    std::vector<std::string> damaged;
    for (; !steps.empty(); steps.pop_back()) {
      try {
        ReadArrays(steps.back());
        break;
      } catch (const Error&) {
        damaged.push_back(Path(steps.back()));
      }
    }
    Fail("{}. {}", error.what(),
         steps.empty()
             ? fmt::format("There is no valid one: begin anew ({})", FlagWords("overwrite"))
             : fmt::format("To go on from step {}, move {} away", steps.back(),
                           fmt::join(damaged, " and ")));
  }
}

ArraysCheckpoint CheckpointStore::ReadArrays(int64_t step) const {
  const std::string directory = Path(step);
  const CheckpointManifest manifest = ReadCheckpointManifest(directory);
  Require(manifest.outer_step == step, "checkpoint {}: {} is of step {}", directory,
          kCheckpointManifest, manifest.outer_step);
  return {.step = step,
          .file = ReadCheckpointFile(directory, manifest, kCheckpointState),
          .logs = manifest.logs};
}

void CheckpointStore::Discard(int64_t step) const {
  // What cannot be removed now is found by the next run.
  try {
    RemoveAll(TemporaryPath(step));
  } catch (const Error&) {
  }
}

void CheckpointStore::ApplyRetention() const {
  std::vector<int64_t> steps = Steps();
  const auto keep_last = static_cast<size_t>(retention_.keep_last);
  steps.resize(steps.size() - std::min(steps.size(), keep_last));
  int64_t last_kept = -1;  // in units of keep_every
  for (const int64_t step : steps) {
    if (retention_.keep_every > 0 && step / retention_.keep_every > last_kept) {
      last_kept = step / retention_.keep_every;
    } else {
      RemoveStep(step);
    }
  }
}

// A directory that is called step-... is complete, also when this is cut short.
void CheckpointStore::RemoveStep(int64_t step) const {
  const std::string removed =
      fmt::format("{}/{}removed-{:08}", directory_, kUnfinishedPrefix, step);
  RenameFile(Path(step), removed);
  SyncDirectory(directory_);
  RemoveAll(removed);
}

void CheckpointStore::RemoveAfter(int64_t step) const {
  std::vector<int64_t> removed;
  for (const int64_t later : Steps()) {
    if (later > step) {
      removed.push_back(later);
    }
  }
  // The newest first, so that what is left at any time is a run that had not come further.
  std::ranges::reverse(removed);
  for (const int64_t later : removed) {
    RemoveStep(later);
  }
  if (!removed.empty()) {
    spdlog::info("{}: the checkpoints after step {} are removed: {}", directory_, step,
                 fmt::join(removed, ", "));
  }
}

void CheckpointStore::Settle() const {
  if (!IsDirectory(directory_)) {
    return;
  }
  for (const std::string& name : ListDirectory(directory_)) {
    if (name.starts_with(kUnfinishedPrefix)) {
      const std::string path = directory_ + "/" + name;
      spdlog::info("removing {}, left behind by a write that did not finish", path);
      RemoveAll(path);
    }
  }
  SyncDirectory(directory_);
}

std::vector<int64_t> CheckpointStore::Steps() const {
  std::vector<int64_t> steps;
  if (IsDirectory(directory_)) {
    for (const std::string& name : ListDirectory(directory_)) {
      if (const auto step = StepOfName(name)) {
        steps.push_back(*step);
      }
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> CheckpointStore::ReadNewest(WorkerStates states) const {
  const std::vector<int64_t> steps = Steps();
  return steps.empty() ? std::nullopt : std::optional(Read(steps.back(), states));
}

Checkpoint CheckpointStore::Read(int64_t step, WorkerStates states) const {
  const std::vector<int64_t> steps = Steps();
  Require(std::ranges::find(steps, step) != steps.end(),
          "{} holds no checkpoint of step {}; there are: {}", directory_, step,
          steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")));
  try {
    return ReadCheckpoint(Path(step), states);
  } catch (const Error& error) {
    std::vector<int64_t> valid;
    for (const int64_t other : steps) {
      try {
        ReadCheckpoint(Path(other), WorkerStates::kWindows);
        valid.push_back(other);
      } catch (const Error&) {
      }
    }
    Fail("{}. {}", error.what(),
         valid.empty()
             ? fmt::format("There is no valid one: begin anew ({})", FlagWords("overwrite"))
             : fmt::format("To go on from another one: {}; valid: {}", OptionWords("from", "STEP"),
                           fmt::join(valid, ", ")));
  }
}

}  // namespace lopt
