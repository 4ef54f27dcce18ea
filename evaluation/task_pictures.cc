#include "lopt/evaluation/task_pictures.h"

#include <algorithm>
#include <numeric>

namespace lopt {

std::vector<Pictures> ShowTraining(const TaskFamily& task, const TrainingCurve& training,
                                   Split split, Key key, Workspace& scratch) {
  constexpr int64_t kMostExamples = 64;
  const auto [first, last] = task.ExampleRange(split);
  std::vector<int32_t> examples(static_cast<size_t>(std::min(kMostExamples, last - first)));
  std::iota(examples.begin(), examples.end(), static_cast<int32_t>(first));
  std::vector<float> model_state = training.model_state;
  return task.Show({.config = training.config,
                    .params = training.params,
                    .model_state = model_state,
                    .split = split,
                    .keys = {&key, 1},
                    .examples = examples},
                   scratch);
}

}  // namespace lopt
