#pragma once

#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct ReducedBatchsizeOptions {
  double fraction = 0.5;
  void Visit(FieldVisitor& v);
};

// Smaller batches: of the examples that the task would draw the first max(1, int(batch_size
// fraction)); by Sampling::kEpoch an epoch is all rows in batches of that size. Explicit examples
// are all used.
class ReducedBatchsize : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does, and if the task has no data set.
  ReducedBatchsize(const std::shared_ptr<const TaskFamily>& task,
                   const ReducedBatchsizeOptions& options);
};

}  // namespace lopt
