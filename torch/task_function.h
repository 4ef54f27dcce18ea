#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What a TaskFunction is asked for besides params, as in TaskEvaluation: n tasks of one family.
struct TaskCall {
  torch::Tensor config = {};       // [n, C]; may be left out where C = 0
  torch::Tensor model_state = {};  // [n, M]; updated in place on Split::kTrain; may be left out
                                   // where M = 0
  Split split = Split::kTrain;     // whose rows the losses are of
  std::vector<Key> keys = {};      // n of them; may be left out where there are examples
  torch::Tensor examples = {};     // integers [n, E]: rows of the family's data set; left out: a
                                   // batch of the split that each key draws
};

// The losses of a task family, native or not, inside a LibTorch program: a function of its params
// that autograd differentiates with the family's own gradient. Copies share the family;
// thread-safe.
class TaskFunction {
 public:
  // Throws Error if there is no family.
  explicit TaskFunction(std::shared_ptr<const TaskFamily> family);

  // The losses [n] of params [n, P], or the loss [] of params [P]; float32. All tensors are on the
  // CPU. Throws Error if that is not what params and `call` are and where TaskFamily::Evaluate
  // does. The gradient itself cannot be differentiated: doing so is an Error.
  torch::Tensor operator()(const torch::Tensor& params, const TaskCall& call) const;

 private:
  std::shared_ptr<const TaskFamily> family_;
  std::shared_ptr<WorkspacePool> scratch_;
};

}  // namespace lopt
