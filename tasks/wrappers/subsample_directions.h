#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct SubsampleDirectionsOptions {
  int64_t directions = 16;
  bool sign = false;
  void Visit(FieldVisitor& v);
};

// Gradients known along a few random directions only: sum_i u_i (u_i . g) over `directions` unit
// vectors u_i of uniform direction, which each evaluation draws from its key; the mean is g times
// directions / P. With `sign`, sum_i u_i sign(u_i . g).
class SubsampleDirections : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does. An evaluation with gradients throws Error if it has no keys.
  SubsampleDirections(const std::shared_ptr<const TaskFamily>& task,
                      const SubsampleDirectionsOptions& options);

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  SubsampleDirectionsOptions options_;
};

}  // namespace lopt
