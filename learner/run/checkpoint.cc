#include "lopt/learner/run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/arrays.h"
#include "lopt/base/device.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/finite.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

Array Scalar(int64_t value) { return Array::Of<int64_t>({}, std::span<const int64_t>(&value, 1)); }

int64_t ScalarOf(const NamedArrays& arrays, std::string_view name) {
  return arrays.At(name, DType::kInt64, {}).As<int64_t>()[0];
}

void LearnerFromFile(const ArrayFile& file, const std::string& source, Checkpoint* checkpoint) {
  const auto metadata = [&](const std::string& name) {
    const auto found = file.metadata.find(name);
    Require(found != file.metadata.end(), "{}: the metadata '{}' is missing", source, name);
    return found->second;
  };
  checkpoint->config = InTodaysKeys(Config::Parse(metadata("config"), source));
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

// The states of these workers, one after the other.
void ReadWorkerFiles(const std::string& directory, const CheckpointManifest& manifest,
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
           UnpackWorkers(ReadCheckpointFile(directory, manifest, WorkersFileName(range)),
                         {.first = next, .count = count}, estimators)) {
        take(std::move(worker));
      }
      next += count;
    }
  }
  Require(next == end, "checkpoint {}: {} lists no file with worker {}", directory,
          kCheckpointManifest, next);
}

}  // namespace

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

Checkpoint ReadCheckpoint(const std::string& directory, WorkerStates states) {
  const CheckpointManifest manifest = ReadCheckpointManifest(directory);
  Checkpoint checkpoint;
  LearnerFromFile(ReadCheckpointFile(directory, manifest, kCheckpointLearner),
                  directory + "/" + kCheckpointLearner, &checkpoint);
  Require(checkpoint.learner.outer_step == manifest.outer_step,
          "checkpoint {}: {} is of outer step {}, {} of {}", directory, kCheckpointLearner,
          checkpoint.learner.outer_step, kCheckpointManifest, manifest.outer_step);
  const std::optional<int64_t> named = StepOfName(fs::path(directory).filename().string());
  Require(!named || *named == manifest.outer_step,
          "checkpoint {}: {} says outer step {}; the directory has been renamed: give it back its "
          "name, {}{:08}",
          directory, kCheckpointManifest, manifest.outer_step, kCheckpointPrefix,
          manifest.outer_step);
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
  const CheckpointManifest manifest = ReadCheckpointManifest(directory);
  std::vector<WorkerState> workers;
  ReadWorkerFiles(directory, manifest, {.first = first, .count = count}, estimators,
                  [&](WorkerState worker) { workers.push_back(std::move(worker)); });
  return workers;
}

}  // namespace lopt
