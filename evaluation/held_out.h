#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/metrics.h"
#include "base/workspace.h"
#include "learner/meta_train_config.h"
#include "lopt/learned_optimizer.h"
#include "tasks/task_family.h"

namespace lopt {

// The small evaluation that meta-training makes of theta on its way (eval_every and the keys after
// it): trains each of the config's eval_tasks, or of its estimators' tasks if it names none, for
// eval_steps with eval_seeds seeds, always the same ones and none that a training draws.
class HeldOutEvaluation {
 public:
  // Throws Error if a task or the optimizer cannot be made.
  explicit HeldOutEvaluation(const MetaTrainConfig& config);

  // In parallel on the thread pool around the call. Means over the seeds, by task:
  //   eval_train_loss/<index>_<type>  of the last kFinalSteps batch losses
  //   eval_test_loss/<index>_<type>   on the whole test split
  //   eval_ratio/<index>_<type>       the test loss as a fraction of the first batch's loss;
  //                                   infinite if a seed diverged
  // and eval_loss, the mean of eval_ratio over the tasks, which lets losses of any size count
  // alike.
  Metrics Evaluate(const Eigen::VectorXf& theta);

 private:
  struct Task {
    std::string name;  // "<index>_<type>"
    std::shared_ptr<const TaskFamily> family;
  };

  std::shared_ptr<const LearnedOptimizer> optimizer_;
  std::vector<Task> tasks_;
  int64_t steps_;
  int64_t seeds_;
  WorkspacePool workspaces_;
};

}  // namespace lopt
