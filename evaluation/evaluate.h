#pragma once

#include <Eigen/Core>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evaluation/baselines.h"
#include "evaluation/evaluation_config.h"
#include "evaluation/run_result.h"
#include "lopt/learned_optimizer.h"
#include "tasks/task_family.h"

namespace lopt {

// A learned optimizer with its weights, under the name that results give it.
struct LearnedContender {
  std::string name;
  std::shared_ptr<const LearnedOptimizer> optimizer;
  Eigen::VectorXf theta;  // [D]
};

// Who is judged.
struct Contenders {
  std::vector<LearnedContender> learned = {};
  std::vector<Baseline> baselines = {};
};

struct EvaluateOptions {
  // Called before each stage of a task ("tuning 8 baselines", "training with 9 optimizers").
  std::function<void(const std::string& task, const std::string& stage)> on_stage = {};
  // Called once for each task with all its results.
  std::function<void(const std::vector<RunResult>&)> on_task = {};
  const std::atomic<bool>* stop = nullptr;  // once true: return after the running stage
};

struct EvaluationOutcome {
  std::vector<RunResult> results = {};  // by task, optimizer (baselines first), seed
  bool interrupted = false;
};

// Trains every task with every optimizer and seed. Each baseline gets config.trials learning rates
// for each task and number of steps, a training of its own for every trial and tuning seed, and is
// then trained with the one of the lowest mean loss on inner_valid; results are judged on the test
// split. Seed s of a task gives every optimizer the same task, start and data. The results,
// wall-clock times left out, are a function of the config and the contenders.
class Evaluation {
 public:
  // Makes the tasks. Throws Error if there is no optimizer, two have one name, or a task cannot be
  // made.
  Evaluation(const EvaluationConfig& config, Contenders contenders);
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  // In parallel on the thread pool around the call.
  EvaluationOutcome Run(const EvaluateOptions& options = {});

 private:
  class Task;

  Contenders contenders_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace lopt
