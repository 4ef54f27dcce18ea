#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct ESTaskOptions {
  double std = 0.01;
  int64_t pairs = 8;
  void Visit(FieldVisitor& v);
};

// Tasks whose gradient is not known, estimated from losses alone: the mean over antithetic pairs of
// eps (loss(p + eps) - loss(p - eps)) / (2 std^2) with eps ~ N(0, std^2 I), which each evaluation
// draws from its key. All losses are on one batch; the loss, aux outputs and the new model state
// are those at p. The mean of the estimate is the gradient of the loss smoothed by that normal
// distribution: of a quadratic, the gradient.
class ESTask : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does. An evaluation with gradients throws Error if it has no keys.
  ESTask(const std::shared_ptr<const TaskFamily>& task, const ESTaskOptions& options);

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  ESTaskOptions options_;
};

}  // namespace lopt
