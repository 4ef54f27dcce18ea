#include "lopt/tasks/wrappers/reduced_batchsize.h"

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

TaskParts WithSmallerBatch(TaskParts parts, const ReducedBatchsizeOptions& options) {
  CheckOptions("ReducedBatchsize", options);
  Require(parts.data.batch_size > 0,
          "ReducedBatchsize: the task has no data set, so it has no batches; wrap a task with one");
  const auto whole = static_cast<double>(parts.data.batch_size);
  parts.data.batch_size = std::max<int64_t>(1, static_cast<int64_t>(whole * options.fraction));
  parts.flops *= static_cast<double>(parts.data.batch_size) / whole;
  return parts;
}

}  // namespace

void ReducedBatchsizeOptions::Visit(FieldVisitor& v) {
  v.Field("fraction", &fraction, {.min = 0, .max = 1, .open_min = true},
          "Part of the task's batch that is kept, at least one example.");
}

ReducedBatchsize::ReducedBatchsize(const std::shared_ptr<const TaskFamily>& task,
                                   const ReducedBatchsizeOptions& options)
    : TaskWrapper(task, WithSmallerBatch(PartsOf(*task), options)) {}

}  // namespace lopt
