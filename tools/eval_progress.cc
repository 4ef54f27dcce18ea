#include "lopt/tools/eval_progress.h"

#include <fmt/core.h>

#include <algorithm>

#include "lopt/base/utf8.h"

namespace lopt {

namespace {

// What a terminal is too narrow for is left out: the rate, then the end of the stage.
std::string EvaluationLine(const EvaluationProgress& progress, const ProgressLine& output) {
  std::string work = fmt::format("{}/{} {}: {}", progress.task_number, progress.tasks,
                                 PlainText(progress.task), progress.stage);
  if (progress.done <= 0) return work;
  const std::string left = fmt::format(
      "  {} left", FormatDuration(std::max(0.0, progress.seconds * (1 / progress.done - 1))));
  const std::string rate =
      fmt::format("  {} inner steps/s",
                  FormatCount(static_cast<double>(progress.inner_steps) / progress.seconds));
  if (output.Fits(work + rate + left)) return work + rate + left;
  if (!output.Fits(work + left) && output.Width() > left.size()) {
    work = FirstColumns(work, output.Width() - left.size() - 1);
  }
  return work + left;
}

}  // namespace

void EvaluationReporter::Step(const EvaluationProgress& progress) {
  const bool new_stage = progress.task_number != task_number_ || progress.stage != stage_;
  task_number_ = progress.task_number;
  stage_ = progress.stage;
  if (new_stage || output_.IsDue(progress.seconds))
    output_.Print(EvaluationLine(progress, output_), progress.seconds);
}

void EvaluationReporter::Finish() { output_.End(); }

}  // namespace lopt
