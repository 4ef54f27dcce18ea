#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "evaluation/contenders.h"
#include "evaluation/evaluation_config.h"
#include "evaluation/evaluation_directory.h"
#include "evaluation/evaluation_progress.h"
#include "evaluation/summary.h"

namespace lopt {

struct EvaluationRunOptions {
  std::string out_dir = {};
  int threads = 1;
  ExistingEvaluation existing = ExistingEvaluation::kRefuse;  // kKeep: go on with it
  bool allow_isa_change = false;  // go on though it was computed on another instruction set
  std::string command = {};       // that repeats it, for the manifest
  std::string version = {};       // of the program, for the manifest
  // As in EvaluateOptions.
  std::function<void(const EvaluationProgress&)> on_progress = {};
  const std::atomic<bool>* stop = nullptr;
};

struct EvaluationRunResult {
  Summary summary = {};  // of all tasks that have ended
  int64_t tasks = 0;
  int64_t tasks_before = 0;  // that had ended when this call began
  int64_t tasks_ended = 0;
  double seconds = 0;  // as the manifest has them
};

// Runs an evaluation, or goes on with one, and writes what evaluation/evaluation_directory.h lists.
// A task's results are written when it ends, so an evaluation that ends early, however it does, is
// gone on with from its first task that had not ended; results are those of an evaluation in one
// go, bit for bit, wall-clock times left out.
// Throws Error as Evaluation and EvaluationDirectory do; and, where it goes on, if the config
// differs in anything but name and data_dir, or the optimizers or their weights do, or, unless
// allow_isa_change is set, the instruction set; if results.jsonl is damaged other than at its end.
EvaluationRunResult RunEvaluation(const EvaluationConfig& config, const Contenders& contenders,
                                  const EvaluationRunOptions& options);

}  // namespace lopt
