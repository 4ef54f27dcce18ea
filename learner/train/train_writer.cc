#include "lopt/learner/train/train_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/options.h"
#include "lopt/learner/run/resume_checks.h"
#include "lopt/learner/run/run_end.h"
#include "lopt/learner/run/run_logs.h"
#include "lopt/learner/run/task_graphs.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {
namespace {

// Metadata of a checkpoint.
constexpr const char* kConfigEntry = "config";
constexpr const char* kIsaEntry = "isa";
constexpr const char* kTheta = "theta";  // the optimizer's weights, one array

const std::string& MetadataOf(const ArrayFile& file, const char* name, const std::string& path) {
  const auto found = file.metadata.find(name);
  Require(found != file.metadata.end(), "{}: the metadata '{}' is missing", path, name);
  return found->second;
}

Array ThetaArray(const Training& training) {
  return Array::Of<float>({training.theta().size()}, AsSpan(training.theta()));
}

NamedArrays ModelArrays(const TaskFamily& task, std::span<const float> params,
                        const TrainState& state) {
  NamedArrays arrays = ArraysFromRow(task.params_layout(), params, "params/");
  arrays.Merge("",
               ArraysFromRow(task.model_state_layout(), AsSpan(state.model_state), "model_state/"));
  return arrays;
}

}  // namespace

TrainWriter::TrainWriter(const Training& training, const TrainOptions& options)
    : training_(training),
      options_(options),
      resolved_(WriteOptions("", training.config())),
      directory_(options.out_dir, RunKind::kTraining),
      store_(directory_.CheckpointPath(),
             {.keep_last = training.config().keep_last, .keep_every = training.config().keep_every},
             options.on_event) {}

TrainState TrainWriter::Begin() {
  TrainState state;
  if (!options_.resume) {
    state = training_.Start();  // its errors come before anything is made
    directory_.Create();
  }
  lock_.emplace(directory_.path());
  std::optional<ArraysCheckpoint> checkpoint;
  if (options_.resume) {
    store_.Settle();
    directory_.RemoveUnfinished();
    checkpoint = store_.ReadNewestArrays();
    if (!checkpoint) {
      RequireNoCheckpointLost(directory_);
      spdlog::info("{} holds no checkpoint yet: starting from the beginning", directory_.path());
    }
    state = checkpoint ? Resume(*checkpoint) : training_.Start();
  } else if (options_.overwrite) {
    directory_.RemoveRun();
  } else {
    directory_.RequireNoRun();
    directory_.RemoveUnfinished();
  }
  const LogState logs = checkpoint ? checkpoint->logs : LogState();
  if (checkpoint) {
    saved_step_ = state.step;
    spdlog::info("resuming from {}", store_.Path(state.step));
  }
  begun_ = true;
  WriteManifest(checkpoint ? RunManifest::kRunning : "starting", state.step);
  directory_.WriteConfig(resolved_);
  if (options_.resume) CutLogs(directory_.path(), logs);
  metrics_.emplace(directory_.path());
  throughput_.emplace(directory_.path(), state.step, logs.seconds);
  SyncDirectory(directory_.path());  // checkpoints count on the logs, whose names are new
  if (!checkpoint) {
    const Config& task = training_.config().task;
    metrics_->WriteGraph(TaskGraphs({{task.Type(), task}}, training_.resources()));
    Save(state);
    WriteManifest(RunManifest::kRunning, state.step);
  }
  return state;
}

TrainState TrainWriter::Resume(const ArraysCheckpoint& checkpoint) const {
  const std::string path = store_.Path(checkpoint.step);
  const Config then = Config::Parse(MetadataOf(checkpoint.file, kConfigEntry, path), path);
  RequireSameConfig(path, ResolvedAgain<TrainConfig>(path, then), resolved_, training_.KeysFree());
  RequireSameIsa(path, MetadataOf(checkpoint.file, kIsaEntry, path), options_.allow_isa_change);
  const auto data = checkpoint.file.metadata.find(kDataEntry);
  if (data != checkpoint.file.metadata.end())
    RequireSameData("from " + path, data->second, training_.data());
  Require(checkpoint.step <= training_.config().steps,
          "cannot resume from {}: it has {} updates, more than steps = {}", path, checkpoint.step,
          training_.config().steps);
  const NamedArrays& arrays = checkpoint.file.arrays;
  Require(arrays.At(kTheta) == ThetaArray(training_),
          "cannot resume from {}: the weights of the optimizer have changed", path);
  TrainState state = training_.UnsetState();
  state.step = checkpoint.step;
  training_.SetModel(arrays, &state);
  RowFromArrays(training_.optimizer_state_layout(), arrays, "optimizer/", AsSpan(state.optimizer));
  return state;
}

bool TrainWriter::SaveIsDue(int64_t step) const {
  const std::chrono::duration<double> since_save = SteadyClock::now() - saved_at_;
  return training_.config().CheckpointIsDue(step, saved_step_, since_save.count());
}

void TrainWriter::Save(const TrainState& state) {
  if (saved_step_ == state.step) return;
  lock_->RequireHeld();
  metrics_->Flush();
  ArraysCheckpoint checkpoint{
      .step = state.step,
      .file = {.arrays = ModelArrays(training_.task(), AsSpan(state.params), state),
               .metadata = {{kConfigEntry, resolved_.Dump(-1)},
                            {kIsaEntry, CurrentIsa()},
                            {kDataEntry, training_.data()}}},
      .logs = {.seconds = throughput_->seconds(), .bytes = LogBytes(directory_.path())}};
  checkpoint.file.arrays.Merge(
      "optimizer/", ArraysFromRow(training_.optimizer_state_layout(), AsSpan(state.optimizer)));
  checkpoint.file.arrays.Set(kTheta, ThetaArray(training_));
  SyncLogs(directory_.path(), checkpoint.logs);
  store_.Write(checkpoint);
  saved_step_ = state.step;
  saved_at_ = SteadyClock::now();
}

std::string TrainWriter::Finish(const TrainState& state, bool interrupted) {
  lock_->RequireHeld();
  metrics_->Flush();
  SyncLogs(directory_.path(), {.bytes = LogBytes(directory_.path())});
  std::string path;
  if (!interrupted) {
    path = directory_.ModelPath();
    WriteArrayFile(path,
                   {.arrays = ModelArrays(training_.task(), training_.EvalParams(state), state),
                    .metadata = {{kConfigEntry, resolved_.Dump(-1)},
                                 {kDataEntry, training_.data()},
                                 {"version", options_.version}}});
  }
  WriteManifest(interrupted ? "interrupted" : "finished", state.step);
  return path;
}

void TrainWriter::Fail(const std::string& error, int64_t step) {
  if (!begun_) return;  // the directory may hold another's run
  WriteRunEnd(
      *lock_, error, [&] { WriteManifest("failed", std::max(step, saved_step_), error); },
      &metrics_);
}

void TrainWriter::WriteManifest(std::string status, int64_t step,
                                std::optional<std::string> error) const {
  directory_.WriteManifest({.status = std::move(status),
                            .error = std::move(error),
                            .version = options_.version,
                            .isa = CurrentIsa(),
                            .seed = training_.config().seed,
                            .threads = options_.threads,
                            .updates = step});
}

}  // namespace lopt
