#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

// Says how meta-training goes. Rates and losses are means over the last 5 seconds. What a terminal
// is too narrow for is left out in this order: rates, ends of the estimators' names, the last ones.
class ProgressReporter {
 public:
  // As for ProgressLine.
  ProgressReporter(std::FILE* stream, int columns);

  void Step(const MetaTrainProgress& progress);
  // Shows the last update and ends the line.
  void Finish();

 private:
  // Totals since the start of this process.
  struct Totals {
    double seconds = 0;
    int64_t updates = 0;
    int64_t inner_steps = 0;
    std::vector<double> loss_sums;  // by estimator, over the updates that have a loss
    std::vector<int64_t> loss_counts;
  };

  void Print();
  std::string Line() const;
  // The mean losses of the first estimators, each after so many characters of its name.
  std::string Losses(size_t estimators, size_t name_size) const;

  ProgressLine output_;
  Totals now_;
  std::deque<Totals> history_;  // oldest first, none older than the time that is averaged over
  int64_t updates_ = 0;
  int64_t meta_steps_ = 0;
  std::vector<std::string> estimator_names_;
  int64_t printed_updates_ = -1;  // -1: nothing yet
};

}  // namespace lopt
