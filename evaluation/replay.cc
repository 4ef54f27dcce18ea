#include "lopt/evaluation/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"

namespace lopt {

Replay ReadReplay(const std::string& path, const Layout& params) {
  const NamedArrays arrays = ReadArrayFile(path).arrays;
  const auto row = [&](const char* prefix) {
    std::vector<float> values(static_cast<size_t>(params.size()));
    RowFromArrays(params, arrays, prefix, values);
    return values;
  };
  try {
    Replay replay{.params = row("param0/")};
    const Array& index = arrays.At("index");
    Require(index.shape().size() == 2 && index.size() > 0,
            "'index' has the shape {}, wanted [steps, batch]", ToString(index.shape()));
    replay.steps = index.shape()[0];
    replay.batch_size = index.shape()[1];
    std::ranges::copy(index.As<int32_t>(), std::back_inserter(replay.index));
    if (arrays.Contains("loss")) {
      const auto loss = arrays.At("loss", DType::kFloat32, {replay.steps}).As<float>();
      replay.loss.emplace(loss.begin(), loss.end());
    }
    if (arrays.Extract("param_end/").size() > 0) replay.param_end = row("param_end/");
    return replay;
  } catch (const Error& error) {
    Fail("{}: cannot be replayed on this task: {}", path, error.what());
  }
}

TrainingCurve RunReplay(const Replay& replay, const TaskFamily& task, const UpdateRule& rule,
                        Workspace& scratch) {
  Require(task.config_layout().size() == 0,
          "replay: the task has a config of {} numbers that a replay does not give",
          task.config_layout().size());
  Require(task.ExampleRange(Split::kTrain).second > 0,
          "replay: the task has no data set for the replay's rows to be of");
  return TrainTask(task, rule, {&replay.steps, 1}, Split::kTest,
                   {.params = replay.params, .examples = replay.index}, scratch);
}

double LargestDifference(std::span<const float> got, std::span<const float> wanted) {
  Require(got.size() == wanted.size(), "replay: {} numbers to compare with {}", got.size(),
          wanted.size());
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    if (got[i] == wanted[i]) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(wanted[i])) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(
        largest, std::abs(double{got[i]} - double{wanted[i]}) / (1 + std::abs(double{wanted[i]})));
  }
  return largest;
}

}  // namespace lopt
