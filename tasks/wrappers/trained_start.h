#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct TrainedStartOptions {
  int64_t steps = 200;
  double learning_rate = 0.003;
  int64_t fresh_tensors = 2;
  void Visit(FieldVisitor& v);
};

// Fine-tuning: another task, started from params that Adam has trained on an earlier one with the
// same layout of params, but for the last `fresh_tensors` tensors, which start as the task's do. A
// task of the family has the config of its own task; each start draws another earlier task, its
// initial params and its batches.
//
// The earlier training has `steps` steps of Adam (Kingma and Ba 2015) with beta1 .9, beta2 .999,
// epsilon 1e-8 and a constant learning rate, on Split::kTrain. A start costs as much as that
// training.
class TrainedStart : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does, and unless both families have the same layouts of params and
  // model state and there are as many tensors as are to be fresh.
  TrainedStart(const std::shared_ptr<const TaskFamily>& task,
               std::shared_ptr<const TaskFamily> earlier, const TrainedStartOptions& options);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;

  std::shared_ptr<const TaskFamily> earlier_;
  TrainedStartOptions options_;
};

}  // namespace lopt
