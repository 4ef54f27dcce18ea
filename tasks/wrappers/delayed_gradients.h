#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct DelayedGradientsOptions {
  int64_t delay = 1;
  void Visit(FieldVisitor& v);
};

// Gradients as a trainer without synchronisation sees them: those at the params of `delay` steps
// ago, on the present batch; in the first steps, at the params of the first. Losses and aux outputs
// are those at the present params, which update the task's model state. A step is an evaluation on
// Split::kTrain; other splits have no delay.
//
// Model state: "history" [delay + 1, P], the params of the latest steps in a ring, and "position",
// that of the latest, -1 before the first step.
class DelayedGradients : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does, and as Layout does if the history is too large.
  DelayedGradients(const std::shared_ptr<const TaskFamily>& task,
                   const DelayedGradientsOptions& options);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  // Adds `params` to a row's own model state; returns those of `delay` steps before.
  std::span<const float> Step(std::span<const float> params, std::span<float> own) const;

  int64_t delay_;
};

}  // namespace lopt
