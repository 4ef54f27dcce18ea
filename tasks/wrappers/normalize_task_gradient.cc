#include "lopt/tasks/wrappers/normalize_task_gradient.h"

#include <cmath>

namespace lopt {

NormalizeTaskGradient::NormalizeTaskGradient(const std::shared_ptr<const TaskFamily>& task,
                                             const NormalizeTaskGradientOptions&)
    : TaskWrapper(task, WithOtherGradients(PartsOf(*task))) {}

void NormalizeTaskGradient::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  EvaluateTask(e, scratch);
  const int64_t size = params_layout().size();
  for (int64_t row = 0; !e.gradients.empty() && row < e.rows; ++row) {
    const std::span<float> gradient = e.gradients.subspan(row * size, size);
    const double norm = std::sqrt(Dot(gradient, gradient));
    if (norm == 0) continue;
    for (float& value : gradient) value = static_cast<float>(value / norm);
  }
}

}  // namespace lopt
