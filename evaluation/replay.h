#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/inner_training.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What a training that was recorded elsewhere did: a safetensors file with
//   param0/<tensor>     the initial params, named and shaped as the task's
//   index [K, batch]    int32, the rows of the raw data files that each step's batch is made of
// and, if they were recorded,
//   loss [K]            of each batch before its update
//   param_end/<tensor>  the params after K steps
struct Replay {
  std::vector<float> params = {};  // [P]
  int64_t steps = 0;               // K
  int64_t batch_size = 0;
  std::vector<int32_t> index = {};                   // [K, batch]
  std::optional<std::vector<float>> loss = {};       // [K]
  std::optional<std::vector<float>> param_end = {};  // [P]
};

// Throws Error that names the file and the tensor that is missing or does not fit the params.
Replay ReadReplay(const std::string& path, const Layout& params);

// Trains exactly what the replay says: from its params, on its batches in its order, without a
// draw. The curve's `judged` is the score on the test split after the last step. Throws Error if
// the task has a config, which would have to be drawn, or no data set.
TrainingCurve RunReplay(const Replay& replay, const TaskFamily& task, const UpdateRule& rule,
                        Workspace& scratch);

// Largest |got - wanted| / (1 + |wanted|), infinite where exactly one of two is not finite.
double LargestDifference(std::span<const float> got, std::span<const float> wanted);

}  // namespace lopt
