#include "lopt/tasks/quadratic/linear_task.h"

#include <algorithm>

namespace lopt {

void LinearTask::DoInit(std::span<const float>, Key key, std::span<float> params,
                        std::span<float>) const {
  Normal(key, params);
}

void LinearTask::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const Workspace::Frame frame(scratch);
  const std::span<float> z = scratch.Take<float>(size);
  for (int64_t row = 0; row < e.rows; ++row) {
    Normal(e.keys[row], z);
    for (float& number : z) number *= scale_;
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += double{z[i]} * double{e.params[row * size + i]};
    e.losses[row] = static_cast<float>(sum);
    if (!e.gradients.empty()) std::ranges::copy(z, e.gradients.begin() + row * size);
  }
}

}  // namespace lopt
