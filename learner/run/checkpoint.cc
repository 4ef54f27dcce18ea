#include "lopt/learner/run/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/arrays.h"
#include "lopt/base/device.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/finite.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/progress.h"
#include "lopt/base/record.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

constexpr const char* kCheckpointFormat = "lopt checkpoint 2";

std::string CrcText(uint32_t crc32) { return fmt::format("{:08x}", crc32); }

}  // namespace

// What manifest.json says.
struct CheckpointManifest {
  static constexpr const char* kFormat = lopt::kCheckpointFormat;

  struct File {
    uint64_t bytes = 0;
    std::string crc32 = {};  // 8 hexadecimal digits

    template <class Visitor>
    void VisitMembers(Visitor& visit) {
      visit("bytes", bytes);
      visit("crc32", crc32);
    }
  };

  int64_t outer_step = 0;
  int64_t workers = 0;
  LogState logs = {};
  std::map<std::string, File> files = {};

  void Add(const CheckpointFile& file) {
    files[file.name] = {.bytes = file.bytes, .crc32 = CrcText(file.crc32)};
  }

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("outer_step", outer_step);
    visit("workers", workers);
    visit("logs", logs);
    visit("files", files);
  }
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLearnerFile = "learner.safetensors";
constexpr const char* kStateFile = "state.safetensors";
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = "tmp-";

uint32_t Crc32(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Array Scalar(int64_t value) { return Array::Of<int64_t>({}, std::span<const int64_t>(&value, 1)); }

int64_t ScalarOf(const NamedArrays& arrays, std::string_view name) {
  return arrays.At(name, DType::kInt64, {}).As<int64_t>()[0];
}

ArrayFile LearnerToFile(const Checkpoint& checkpoint) {
  const LearnerState& learner = checkpoint.learner;
  ArrayFile file;
  file.arrays =
      ArraysFromRow(checkpoint.theta,
                    {learner.theta.data(), static_cast<size_t>(learner.theta.size())}, "theta/");
  file.arrays.Merge("theta_opt/", learner.theta_opt);
  file.arrays.Merge("norms/", learner.norms);
  file.arrays.Set("outer_step", Scalar(learner.outer_step));
  file.arrays.Set("skipped_updates", Scalar(learner.skipped_updates));
  const uint32_t key[] = {checkpoint.run_key.hi, checkpoint.run_key.lo};
  file.arrays.Set("run_key", Array::Of<uint32_t>({2}, key));
  std::vector<int64_t> totals;
  for (const StepCounts& counts : checkpoint.totals) {
    totals.insert(totals.end(), {counts.inner_steps, counts.non_finite, counts.episodes_ended});
  }
  file.arrays.Set("totals",
                  Array::Of<int64_t>({static_cast<int64_t>(checkpoint.totals.size()), 3}, totals));
  file.arrays.Merge("ledger/", checkpoint.ledger.ToArrays());
  file.arrays.Set("journal_position", Scalar(checkpoint.journal_position));
  file.metadata = {{"format", kCheckpointFormat},
                   {"config", checkpoint.config.Dump(-1)},
                   {"learned_optimizer", checkpoint.config.json().at("learned_optimizer").dump()},
                   {"isa", checkpoint.isa}};
  if (checkpoint.data) file.metadata["data"] = *checkpoint.data;
  if (checkpoint.held_out_data) file.metadata["held_out_data"] = *checkpoint.held_out_data;
  if (checkpoint.device != ModelOf(nullptr)) file.metadata["device"] = checkpoint.device;
  return file;
}

void LearnerFromFile(const ArrayFile& file, const std::string& source, Checkpoint* checkpoint) {
  const auto metadata = [&](const std::string& name) {
    const auto found = file.metadata.find(name);
    Require(found != file.metadata.end(), "{}: the metadata '{}' is missing", source, name);
    return found->second;
  };
  checkpoint->config = Config::Parse(metadata("config"), source);
  checkpoint->isa = metadata("isa");
  if (file.metadata.contains("data")) checkpoint->data = metadata("data");
  if (file.metadata.contains("held_out_data")) {
    checkpoint->held_out_data = metadata("held_out_data");
  }
  if (file.metadata.contains("device")) checkpoint->device = metadata("device");
  checkpoint->theta =
      OptimizerRegistry()
          .Make(Config::Parse(metadata("learned_optimizer"), source + ", learned_optimizer"))
          ->theta_layout();

  const NamedArrays& arrays = file.arrays;
  LearnerState& learner = checkpoint->learner;
  // Before there is room for it: an optimizer's options may ask for more than any file holds.
  for (const LayoutEntry& entry : checkpoint->theta.entries()) {
    arrays.At("theta/" + entry.name, DType::kFloat32, entry.shape);
  }
  learner.theta.resize(checkpoint->theta.size());
  RowFromArrays(checkpoint->theta, arrays, "theta/",
                {learner.theta.data(), static_cast<size_t>(learner.theta.size())});
  RequireFiniteWeights(checkpoint->theta, AsSpan(learner.theta),
                       source + ": weights must be finite numbers");
  learner.theta_opt = arrays.Extract("theta_opt/");
  learner.norms = arrays.Extract("norms/");
  learner.outer_step = ScalarOf(arrays, "outer_step");
  learner.skipped_updates = ScalarOf(arrays, "skipped_updates");
  const auto key = arrays.At("run_key", DType::kUint32, {2}).As<uint32_t>();
  checkpoint->run_key = {.hi = key[0], .lo = key[1]};
  const Shape totals_shape = arrays.At("totals").shape();
  Require(totals_shape.size() == 2 && totals_shape[1] == 3,
          "{}: 'totals' must have shape [estimators, 3], got {}", source, ToString(totals_shape));
  const auto totals = arrays.At("totals").As<int64_t>();
  for (size_t i = 0; i < totals.size(); i += 3) {
    checkpoint->totals.push_back(
        {.inner_steps = totals[i], .non_finite = totals[i + 1], .episodes_ended = totals[i + 2]});
  }
  checkpoint->ledger = Ledger::FromArrays(arrays.Extract("ledger/"));
  checkpoint->journal_position = ScalarOf(arrays, "journal_position");
}

using Manifest = CheckpointManifest;

Manifest ReadManifest(const std::string& directory) {
  const std::string name = fs::path(directory).filename();
  Require(IsDirectory(directory), "checkpoint {}: there is no such directory", directory);
  Require(!name.starts_with(kTemporaryPrefix),
          "checkpoint {}: this is what an unfinished write left behind, not a checkpoint",
          directory);
  const std::string path = directory + "/" + kManifest;
  Require(Exists(path), "checkpoint {}: {} is missing, so the checkpoint is not complete",
          directory, kManifest);
  auto manifest = ParseRecord<Manifest>(ReadTextFile(path),
                                        fmt::format("checkpoint {}: {}", directory, kManifest));
  for (const auto& [log, bytes] : manifest.logs.bytes) {
    Require(bytes >= 0, "checkpoint {}: {}: the log {} has a length of at least 0, got {}",
            directory, kManifest, log, bytes);
  }
  return manifest;
}

// A file that the manifest vouches for.
ArrayFile ReadEntry(const std::string& directory, const Manifest& manifest,
                    const std::string& name) {
  const auto entry = manifest.files.find(name);
  Require(entry != manifest.files.end(), "checkpoint {}: {} does not list {}", directory, kManifest,
          name);
  const Manifest::File& file = entry->second;
  const std::string path = directory + "/" + name;
  Require(Exists(path), "checkpoint {}: {} is missing", directory, name);
  std::vector<std::byte> bytes = ReadFile(path);
  Require(bytes.size() == file.bytes, "checkpoint {}: {} has {} bytes, {} says {}", directory, name,
          bytes.size(), kManifest, file.bytes);
  const std::string crc = CrcText(Crc32(bytes));
  Require(crc == file.crc32, "checkpoint {}: {} has CRC-32 {}, {} says {}: the file is damaged",
          directory, name, crc, kManifest, file.crc32);
  NoteProgress();
  return ParseArrayFile(bytes, path);
}

// The states of these workers, one after the other.
void ReadWorkerFiles(const std::string& directory, const Manifest& manifest,
                     const WorkerBlock& wanted, size_t estimators,
                     const std::function<void(WorkerState)>& take) {
  std::map<int64_t, WorkerBlock> files;
  for (const auto& [name, entry] : manifest.files) {
    if (const auto range = WorkersOfFile(name)) {
      files[range->first] = *range;
    }
  }
  int64_t next = wanted.first;
  const int64_t end = wanted.first + wanted.count;
  for (const auto& [first, range] : files) {
    const int64_t file_end = first + range.count;
    if (first <= next && next < std::min(file_end, end)) {
      const int64_t count = std::min(file_end, end) - next;
      for (WorkerState& worker :
           UnpackWorkers(ReadEntry(directory, manifest, WorkersFileName(range)),
                         {.first = next, .count = count}, estimators)) {
        take(std::move(worker));
      }
      next += count;
    }
  }
  Require(next == end, "checkpoint {}: {} lists no file with worker {}", directory, kManifest,
          next);
}

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kStepPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step)
                                                                  : std::nullopt;
}

}  // namespace

CheckpointFile WriteCheckpointFile(const std::string& directory, const std::string& name,
                                   std::span<const std::byte> bytes) {
  // Its name is flushed with those of the others, when the directory is complete.
  const std::string path = directory + "/" + name;
  WriteFile(path, bytes, Flush::kNo);
  SyncFile(path);
  NoteProgress();
  return {.name = name, .bytes = bytes.size(), .crc32 = Crc32(bytes)};
}

Checkpoint ReadCheckpoint(const std::string& directory, WorkerStates states) {
  const Manifest manifest = ReadManifest(directory);
  Checkpoint checkpoint;
  LearnerFromFile(ReadEntry(directory, manifest, kLearnerFile), directory + "/" + kLearnerFile,
                  &checkpoint);
  Require(checkpoint.learner.outer_step == manifest.outer_step,
          "checkpoint {}: {} is of outer step {}, {} of {}", directory, kLearnerFile,
          checkpoint.learner.outer_step, kManifest, manifest.outer_step);
  const std::optional<int64_t> named = StepOfName(fs::path(directory).filename().string());
  Require(!named || *named == manifest.outer_step,
          "checkpoint {}: {} says outer step {}; the directory has been renamed: give it back its "
          "name, {}{:08}",
          directory, kManifest, manifest.outer_step, kStepPrefix, manifest.outer_step);
  checkpoint.logs = manifest.logs;
  ReadWorkerFiles(directory, manifest, {.first = 0, .count = manifest.workers},
                  checkpoint.totals.size(), [&](WorkerState worker) {
                    if (states == WorkerStates::kWindows) {
                      worker.estimators.clear();
                    }
                    checkpoint.workers.push_back(std::move(worker));
                  });
  return checkpoint;
}

std::vector<WorkerState> ReadWorkers(const std::string& directory, int64_t first, int64_t count,
                                     size_t estimators) {
  const Manifest manifest = ReadManifest(directory);
  std::vector<WorkerState> workers;
  ReadWorkerFiles(directory, manifest, {.first = first, .count = count}, estimators,
                  [&](WorkerState worker) { workers.push_back(std::move(worker)); });
  return workers;
}

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
  return fmt::format("{}/{}{:08}", directory_, kStepPrefix, step);
}

std::string CheckpointStore::TemporaryPath(int64_t step) const {
  return fmt::format("{}/{}{}", directory_, kTemporaryPrefix,
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
  Manifest manifest{.outer_step = step, .logs = checkpoint.logs};
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
  manifest.Add(
      WriteCheckpointFile(temporary, kLearnerFile, SerializeArrayFile(LearnerToFile(checkpoint))));
  Complete(manifest);
}

void CheckpointStore::Complete(const CheckpointManifest& manifest) const {
  const int64_t step = manifest.outer_step;
  Event(step, "manifest");
  // The last: with its name those of all are flushed.
  WriteRecordFile(TemporaryPath(step) + "/" + kManifest, manifest);
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
    Manifest manifest{.outer_step = step, .logs = checkpoint.logs};
    Event(step, "state");
    manifest.Add(WriteCheckpointFile(temporary, kStateFile, SerializeArrayFile(checkpoint.file)));
    Complete(manifest);
  } catch (...) {
    Discard(step);
    throw;
  }
}

std::optional<ArraysCheckpoint> CheckpointStore::ReadNewestArrays() const {
  const std::vector<int64_t> steps = Steps();
  if (steps.empty()) return std::nullopt;
  const std::string directory = Path(steps.back());
  const Manifest manifest = ReadManifest(directory);
  Require(manifest.outer_step == steps.back(), "checkpoint {}: {} is of step {}", directory,
          kManifest, manifest.outer_step);
  return ArraysCheckpoint{.step = manifest.outer_step,
                          .file = ReadEntry(directory, manifest, kStateFile),
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
  for (const int64_t step : steps) {
    if (retention_.keep_every > 0 && step % retention_.keep_every == 0) {
      continue;
    }
    RemoveStep(step);
  }
}

// A directory that is called step-... is complete, also when this is cut short.
void CheckpointStore::RemoveStep(int64_t step) const {
  const std::string removed = fmt::format("{}/{}removed-{:08}", directory_, kTemporaryPrefix, step);
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
    if (name.starts_with(kTemporaryPrefix)) {
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
         valid.empty() ? "There is no valid one: begin anew (--overwrite)"
                       : fmt::format("To go on from another one: --from STEP; valid: {}",
                                     fmt::join(valid, ", ")));
  }
}

}  // namespace lopt
