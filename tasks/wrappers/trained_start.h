#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct TrainedStartOptions {
  int64_t steps = 200;
  double learning_rate = 0.003;
  int64_t fresh_tensors = 2;
  void Visit(FieldVisitor& v);
};

// Fine-tuning: another task, started from params that Adam has trained on an earlier one. The last
// `fresh_tensors` tensors start as the task's do; the others, and the model state, such as the
// running statistics of batch norm, are as the earlier training left them. A task of the family has
// the config of its own task; each start draws another earlier task, its initial params and its
// batches.
//
// The earlier training has `steps` steps of Adam (Kingma and Ba 2015) with beta1 .9, beta2 .999,
// epsilon 1e-8 and a constant learning rate, on Split::kTrain. A start costs as much as that
// training, which flops() leaves out, and throws Error where a loss or a param of it is not finite.
class TrainedStart : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does, and unless there are as many tensors as are to be fresh, and
  // both families have the same number of them, the others alike, and the same model state.
  TrainedStart(const std::shared_ptr<const TaskFamily>& task,
               std::shared_ptr<const TaskFamily> earlier, const TrainedStartOptions& options);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  // The earlier training: params [those of the earlier family] and model state, out.
  void TrainEarlier(Key key, std::span<float> params, std::span<float> model_state,
                    Workspace& scratch) const;

  std::shared_ptr<const TaskFamily> earlier_;
  TrainedStartOptions options_;
  int64_t kept_;  // params, the first ones
  mutable WorkspacePool workspaces_;
};

}  // namespace lopt
