#include "lopt/learner/train/trained_model.h"

#include <fmt/format.h>

#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/option_words.h"
#include "lopt/base/safetensors.h"
#include "lopt/evaluation/training_draw.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

// What a run that is not finished has: ", and its newest checkpoint is ...".
std::string CheckpointWords(const RunDirectory& run) {
  if (!IsDirectory(run.CheckpointPath())) return ", and it has no checkpoint";
  const CheckpointStore store(run.CheckpointPath(), {});
  const std::vector<int64_t> steps = store.Steps();
  if (steps.empty()) return ", and it has no checkpoint";
  return fmt::format(", and its newest checkpoint is {}", store.Path(steps.back()));
}

void RequireFinished(const RunDirectory& run) {
  const std::string& path = run.path();
  Require(IsDirectory(path), "{}: there is no such directory; wanted that of a lopt train", path);
  Require(
      !Exists(run.JournalPath()) && !Exists(run.ThetaPath()),
      "{} holds a meta-training run, which has a theta and no model; wanted a run of lopt train",
      path);
  Require(run.HoldsRun(), "{} holds no run; wanted one of lopt train", path);
  const RunManifest manifest = run.ReadManifest();
  if (manifest.status != "finished") {
    Fail("{} has no model yet: its training is {} ({} updates){}; lopt train resumes it ({})", path,
         manifest.status, manifest.updates, CheckpointWords(run), FlagWords("resume"));
  }
  Require(Exists(run.ModelPath()),
          "{} is gone, but its training is finished; lopt train writes it again ({})",
          run.ModelPath(), FlagWords("resume"));
}

const std::string& EntryOf(const ArrayFile& file, const char* name, const std::string& path) {
  const auto found = file.metadata.find(name);
  Require(found != file.metadata.end(),
          "{}: the metadata '{}' is missing, so it is no model of a lopt train", path, name);
  return found->second;
}

TrainConfig ConfigOf(const std::string& text, const std::string& path, const std::string& version) {
  try {
    return ReadOptions<TrainConfig>(Config::Parse(text, path));
  } catch (const Error& error) {
    Fail("{}: this program cannot read the config of the training, which lopt {} wrote: {}", path,
         version, error.what());
  }
}

// The data that the training had; nothing: it is not known.
std::optional<std::string> DataOf(const ArrayFile& model, const RunDirectory& run) {
  const auto noted = model.metadata.find(kDataEntry);
  if (noted != model.metadata.end()) return noted->second;
  const auto checkpoint = CheckpointStore(run.CheckpointPath(), {}).ReadNewestArrays();
  if (!checkpoint) return std::nullopt;
  const auto then = checkpoint->file.metadata.find(kDataEntry);
  if (then == checkpoint->file.metadata.end()) return std::nullopt;
  return then->second;
}

void RowsFromModel(const NamedArrays& arrays, const std::string& path, const std::string& type,
                   const TaskFamily& task, std::span<float> params, std::span<float> model_state) {
  try {
    RowFromArrays(task.params_layout(), arrays, "params/", params);
    RowFromArrays(task.model_state_layout(), arrays, "model_state/", model_state);
  } catch (const Error& error) {
    Fail("{}: the file is of another model than that of {}: {}", path, type, error.what());
  }
}

}  // namespace

void ReadModelRows(const std::string& path, const std::string& type, const TaskFamily& task,
                   std::span<float> params, std::span<float> model_state) {
  RowsFromModel(ReadArrayFile(path).arrays, path, type, task, params, model_state);
}

TrainedModel ReadTrainedModel(const std::string& run, const std::optional<std::string>& data_dir) {
  const RunDirectory directory(run);
  RequireFinished(directory);
  TrainedModel model{.path = directory.ModelPath()};
  const ArrayFile file = ReadArrayFile(model.path);
  model.version = EntryOf(file, "version", model.path);
  model.config = ConfigOf(EntryOf(file, "config", model.path), model.path, model.version);
  if (data_dir) model.config.data_dir = *data_dir;

  const TaskResources resources(model.config.data_dir);
  model.task = TaskRegistry().Make(model.config.task, resources);
  Require(!data_dir || resources.data_dir_used(),
          "the data directory is {}, but the task of {} does not read from one",
          data_dir.value_or(""), run);
  const std::string data = resources.DataChecksums();
  if (!data.empty()) RequireDataOf(model.path, DataOf(file, directory), data);

  const TaskFamily& task = *model.task;
  model.task_config.resize(static_cast<size_t>(task.config_layout().size()));
  model.params.resize(static_cast<size_t>(task.params_layout().size()));
  model.model_state.resize(static_cast<size_t>(task.model_state_layout().size()));
  const Key key = KeyFromSeed(static_cast<uint64_t>(model.config.seed));
  task.Sample(FoldIn(key, TrainingDraw::kTask), model.task_config);
  RowsFromModel(file.arrays, model.path, model.config.task.Type(), task, model.params,
                model.model_state);
  return model;
}

}  // namespace lopt
