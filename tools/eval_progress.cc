#include "lopt/tools/eval_progress.h"

#include <fmt/core.h>

#include <algorithm>

namespace lopt {

namespace {

std::string Line(const EvaluationProgress& progress) {
  std::string line = fmt::format("{}/{} {}: {}", progress.task_number, progress.tasks,
                                 progress.task, progress.stage);
  if (progress.done > 0) {
    const double left = std::max(0.0, progress.seconds * (1 / progress.done - 1));
    line += fmt::format("  {} inner steps/s  {} left",
                        FormatCount(static_cast<double>(progress.inner_steps) / progress.seconds),
                        FormatDuration(left));
  }
  return line;
}

}  // namespace

void EvaluationReporter::Step(const EvaluationProgress& progress) {
  const bool new_stage = progress.task_number != task_number_ || progress.stage != stage_;
  task_number_ = progress.task_number;
  stage_ = progress.stage;
  if (new_stage || output_.IsDue(progress.seconds)) output_.Print(Line(progress), progress.seconds);
}

void EvaluationReporter::Finish() { output_.End(); }

}  // namespace lopt
