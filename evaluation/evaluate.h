#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/evaluation_progress.h"
#include "lopt/evaluation/run_result.h"

namespace lopt {

class EvaluatedTask;

// What an evaluation is told besides its config. All of it may be left out.
struct EvaluateOptions {
  // Results of an earlier part of the same evaluation: of whole tasks, from the first on. They are
  // not trained again.
  std::vector<RunResult> finished = {};
  // Called when a stage of a task begins and after trainings, by one thread at a time.
  std::function<void(const EvaluationProgress&)> on_progress = {};
  // Called once for each trained task with all its results.
  std::function<void(const std::vector<RunResult>&)> on_task = {};
  const std::atomic<bool>* stop = nullptr;  // once true: return after the running steps
};

// What an evaluation gave.
struct EvaluationOutcome {
  std::vector<RunResult> results = {};  // by task, optimizer (baselines first), seed
  bool interrupted = false;             // by `stop`: results are of the tasks that ended
};

// WarnBeyondHorizon of every file's weights, once, for the trainings of an evaluation.
void WarnBeyondHorizons(const EvaluationConfig& config, const EvaluatedOptimizers& optimizers);

// Trains every task with every optimizer and seed. Each baseline, and each learned optimizer whose
// steps are tuned, gets config.trials values for each task and number of steps, a training of its
// own for every trial and tuning seed, and is then trained with the one of the lowest mean loss on
// inner_valid; results are judged on the test split. Seed s of a task gives every optimizer the
// same task, start and data. Where a task family wants several rows in one evaluation, seeds of one
// optimizer advance together. The results, wall-clock times left out, are a function of the config
// and the optimizers.
class Evaluation {
 public:
  // Makes the tasks. Throws Error if there is no optimizer, two have one name, or a task cannot be
  // made.
  Evaluation(const EvaluationConfig& config, EvaluatedOptimizers optimizers);
  ~Evaluation();

  // What the tasks have read from files (TaskResources::DataChecksums).
  const std::string& data() const { return data_; }

  // The results of the tasks at the beginning of `results` that are whole; those of a last task
  // that is not are left out. Throws Error if they are not results of this evaluation in its order.
  std::vector<RunResult> WholeTasks(std::vector<RunResult> results) const;

  // In parallel on the thread pool around the call. Throws Error as WholeTasks does, and if
  // options.finished is of a part of a task.
  EvaluationOutcome Run(const EvaluateOptions& options = {});

 private:
  const int64_t seeds_;
  const EvaluatedOptimizers optimizers_;
  const std::vector<std::string> names_;  // in the order of results
  std::vector<std::unique_ptr<EvaluatedTask>> tasks_;
  std::string data_;
};

}  // namespace lopt
