#pragma once

#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct NormalizeTaskGradientOptions {
  void Visit(FieldVisitor&) {}
};

// Gradients divided by their norm over all tensors. A gradient of zeros stays one; one that is not
// finite stays so.
class NormalizeTaskGradient : public TaskWrapper {
 public:
  NormalizeTaskGradient(const std::shared_ptr<const TaskFamily>& task,
                        const NormalizeTaskGradientOptions& options);

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

}  // namespace lopt
