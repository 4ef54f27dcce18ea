#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/metrics.h"
#include "lopt/base/pictures.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What theta is judged on: data that no inner training sees, and not the test split, on which an
// evaluation then judges what was chosen here.
inline constexpr Split kHeldOutSplit = Split::kOuterValid;

struct HeldOutOptions {
  std::vector<Config> tasks = {};  // type and options of each; at least one
  int64_t steps = 300;             // inner steps of a training
  int64_t seeds = 8;               // trainings of each task
};

struct HeldOutResult {
  // The mean over the tasks of the loss on kHeldOutSplit as a fraction of the first batch's loss,
  // which lets losses of any size count alike. Infinite if a training diverged. Of a first loss f
  // that is not positive, where a fraction says nothing: 1 + (loss - f) / |f|, or 1 + loss where f
  // is 0.
  double loss = 0;
  // Means over the seeds, by task, and the loss:
  //   eval_train_loss/<index>_<TaskLabel>  of the last kFinalSteps batch losses
  //   eval_valid_loss/<index>_<TaskLabel>  on the whole split kHeldOutSplit
  //   eval_ratio/<index>_<TaskLabel>       the fraction above
  //   eval_loss
  Metrics metrics = {};
  // What the first training of each task that has something to show does in the end on
  // kHeldOutSplit, by "<index>_<TaskLabel>/<name of the pictures>".
  std::map<std::string, Pictures> pictures = {};
};

// The small evaluation that meta-training makes of theta on its way: trains each task with some
// seeds, always the same ones and none that a training draws.
class HeldOutEvaluation {
 public:
  // Throws Error unless there is a task, all can be made, and steps and seeds are at least 1.
  HeldOutEvaluation(std::shared_ptr<const LearnedOptimizer> optimizer,
                    const TaskResources& resources, const HeldOutOptions& options);

  // In parallel on the thread pool around the call; theta is [D].
  HeldOutResult Evaluate(const Eigen::VectorXf& theta);

 private:
  struct Task {
    std::string name;  // "<index>_<TaskLabel>"
    std::shared_ptr<const TaskFamily> family;
  };

  std::shared_ptr<const LearnedOptimizer> optimizer_;
  std::vector<Task> tasks_;
  int64_t steps_;
  int64_t seeds_;
  WorkspacePool workspaces_;
};

}  // namespace lopt
