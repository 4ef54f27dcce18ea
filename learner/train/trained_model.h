#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/learner/train/train_config.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What the metadata of a model file and of a training's checkpoints call TaskResources::
// DataChecksums; not in all files of 0.1.
inline constexpr const char* kDataEntry = "data";

// The model that a finished training has left.
struct TrainedModel {
  std::string path = {};     // of model.safetensors
  TrainConfig config = {};   // of the training
  std::string version = {};  // of the program that has trained it
  std::shared_ptr<const TaskFamily> task = {};
  std::vector<float> task_config = {};  // [C]
  std::vector<float> params = {};       // [P]
  std::vector<float> model_state = {};  // [M]
};

// Reads it from the directory of a run of `lopt train`. `data_dir`, where given, is where its data
// are now. Throws Error if the directory holds no such run, the run is not finished (the message
// names its newest checkpoint), the file is damaged or of another model, its config is not one that
// this program knows, or the data have changed.
TrainedModel ReadTrainedModel(const std::string& run,
                              const std::optional<std::string>& data_dir = {});

// Sets params [P] and model state [M] of a task of this type to those of a file with the arrays
// params/<tensor> and model_state/<tensor>. Throws Error if it cannot be read or is not of such a
// model.
void ReadModelRows(const std::string& path, const std::string& type, const TaskFamily& task,
                   std::span<float> params, std::span<float> model_state);

}  // namespace lopt
