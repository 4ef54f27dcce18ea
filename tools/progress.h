#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "learner/job/meta_trainer.h"

namespace lopt {

// Says on a stream how meta-training goes: one line that is rewritten in place on a terminal, a
// line every few seconds otherwise. Rates and losses are those of the last seconds.
class ProgressReporter {
 public:
  // `columns`: width of the terminal; 0: not a terminal.
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

  std::FILE* stream_;
  int columns_;
  Totals now_;
  std::deque<Totals> history_;  // oldest first, none older than the time that is averaged over
  int64_t updates_ = 0;
  int64_t meta_steps_ = 0;
  std::vector<std::string> estimator_names_;
  double printed_seconds_ = -1;  // -1: nothing yet
  int64_t printed_updates_ = -1;
};

// The terminal's width if the stream is one, else 0.
int TerminalColumns(std::FILE* stream);

// "0:42", "3:07:09".
std::string FormatDuration(double seconds);
// "5,860".
std::string FormatCount(double count);

}  // namespace lopt
