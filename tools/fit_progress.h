#pragma once

#include <cstdio>
#include <string>

#include "lopt/base/environment.h"
#include "lopt/tools/fit/fit.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

// Says how a fit goes, with a bar and the time left.
class FitReporter {
 public:
  // As for ProgressLine.
  FitReporter(std::FILE* stream, int columns) : output_(stream, columns) {}

  void Step(const FitProgress& progress);
  // Ends the line.
  void Finish() { output_.End(); }

 private:
  ProgressLine output_;
  std::string phase_;  // of the last call
  const SteadyClock::time_point start_ = SteadyClock::now();
};

}  // namespace lopt
