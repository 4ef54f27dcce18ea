#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/evaluation_progress.h"
#include "lopt/evaluation/summary.h"

namespace lopt {

// Where and how an evaluation runs; nothing here changes its results.
struct EvaluationRunOptions {
  std::string out_dir = {};  // directory, made if it is missing; must be given
  int threads = 1;           // of the pool that it runs on
  ExistingEvaluation existing = ExistingEvaluation::kRefuse;  // kKeep: go on with it
  bool allow_isa_change = false;  // go on though it was computed on another instruction set
  std::string command = {};       // that repeats it, for the manifest
  std::string version = {};       // of the program, for the manifest
  // As in EvaluateOptions.
  std::function<void(const EvaluationProgress&)> on_progress = {};
  const std::atomic<bool>* stop = nullptr;  // once true: end after the running steps
};

// What a run has to tell when it ends.
struct EvaluationRunResult {
  Summary summary = {};      // of all tasks that have ended
  int64_t tasks = 0;         // of the config
  int64_t tasks_before = 0;  // that had ended when this call began
  int64_t tasks_ended = 0;   // by the end of this call, those before included
  double seconds = 0;        // as the manifest has them
};

// Runs an evaluation, or goes on with one, and writes what evaluation/evaluation_directory.h lists.
// A task's results are written when it ends, so an evaluation that ends early, however it does, is
// gone on with from its first task that had not ended; results are those of an evaluation in one
// go, bit for bit, wall-clock times left out.
// Throws Error as Evaluation and EvaluationDirectory do; and, where it goes on, if the config
// differs in anything but name and data_dir, or the optimizers or their weights do, or what the
// baselines are, or, unless allow_isa_change is set, the instruction set; if another tuner has
// tuned results of it; if results.jsonl is damaged other than at its end.
EvaluationRunResult RunEvaluation(const EvaluationConfig& config,
                                  const EvaluatedOptimizers& optimizers,
                                  const EvaluationRunOptions& options);

}  // namespace lopt
