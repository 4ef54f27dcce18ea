#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "lopt/evaluation/evaluation_progress.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

// Says how an evaluation goes, and how long it still takes if all work goes as fast as what has
// been done. Off a terminal there is a line at every stage of a task as well.
class EvaluationReporter {
 public:
  // As for ProgressLine.
  EvaluationReporter(std::FILE* stream, int columns) : output_(stream, columns) {}

  void Step(const EvaluationProgress& progress);
  // Ends the line.
  void Finish();

 private:
  ProgressLine output_;
  int64_t task_number_ = 0;  // of the last call
  std::string stage_;
};

}  // namespace lopt
