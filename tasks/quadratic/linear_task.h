#pragma once

#include "lopt/tasks/task_family.h"

namespace lopt {

// loss = scale z . x over tensors of any shapes, z ~ N(0, I) drawn from the evaluation's key, so
// the gradient, scale z, is the same whatever the params: implementations of an optimizer that
// differ by rounding see the same gradients for as many steps as one likes. Starts at x ~ N(0, I).
class LinearTask : public TaskFamily {
 public:
  explicit LinearTask(Layout params, float scale = 1)
      : TaskFamily({.params = std::move(params)}), scale_(scale) {}

  float scale() const { return scale_; }

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  float scale_;
};

}  // namespace lopt
