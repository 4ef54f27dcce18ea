#pragma once

#include <cstdint>
#include <string>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"

namespace lopt {

// A small experiment with every kind of estimator: 20 updates in a fraction of a second.
inline MetaTrainConfig SmallExperiment(int64_t workers, int64_t meta_steps = 20) {
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
    "theta_opt": {"type": "Adam", "learning_rate": 1e-3,
                  "schedule": {"type": "Warmup", "warmup_steps": 5, "start_scale": 0.2}},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10},
       "num_tasks": 3, "trunc_length": 10, "std": 0.01, "random_initial_iteration_offset": 20,
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 8, "max_length": 40}},
      {"type": "TruncatedES", "weight": 0.5, "num_tasks": 2, "trunc_length": 4, "std": 0.02,
       "with_metrics": true,
       "task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 8,
                "data": "glyphs"},
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}},
      {"type": "FullES", "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
       "num_tasks": 2, "std": 0.01,
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3, "max_length": 12}}
    ],
    "windows_per_update": 2, "seed": 11,
    "checkpoint_seconds": 0, "checkpoint_steps": 7, "keep_last": 2
  })",
                                                           "the small experiment"));
  config.workers = workers;
  config.meta_steps = meta_steps;
  return config;
}

// The same with estimators whose perturbations outlive windows, on the same problems, and with
// TruncatedES of the other kind.
inline MetaTrainConfig LastingExperiment(int64_t workers, int64_t meta_steps = 20) {
  MetaTrainConfig config = SmallExperiment(workers, meta_steps);
  const Config quadratic = config.estimators[0];
  const Config images = config.estimators[1];
  config.estimators = {quadratic.With("type", "TruncatedNRES").With("burn_in", "15"),
                       images.With("type", "GPESK").With("K", "3"), images.With("carried", "mean")};
  return config;
}

// The tensors of the final theta, and the lines of metrics, that a run left. What was lost with
// processes that died is left out: all else is the same in a run that was never disturbed.
inline NamedArrays FinalTheta(const std::string& directory) {
  return ReadArrayFile(directory + "/theta.safetensors").arrays.Extract("theta/");
}
inline std::string MetricsLines(const std::string& directory) {
  std::string lines = ReadTextFile(directory + "/metrics.jsonl");
  for (size_t at = 0; (at = lines.find("\"lost_steps/", at)) != std::string::npos;) {
    const size_t end = lines.find_first_of(",}", at);
    if (end != std::string::npos && lines[end] == ',') {
      lines.erase(at, end + 1 - at);
    } else {
      at = end;
    }
  }
  return lines;
}

}  // namespace lopt
