#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/distill/scheduler_records.h"

namespace lopt {

// Step sizes without a network. After t updates of a training of T a tensor's step has the size
// (SchedulerRecord)
//   a = step_size (1000 / T)^length_power schedule(t, T) end^(t / T),
// times `vectors` if it has fewer than two axes, and takes away weight_decay a of its params, as in
// AdamW. The schedule is the learned scheduler's own.
struct StepFormula {
  static constexpr double kLength = 1000;

  double step_size = 0;     // of the first steps of matrices in a training of 1,000
  double length_power = 0;  // how much smaller steps are in longer trainings
  double end = 1;           // what the last steps are multiplied by, beside the schedule
  double vectors = 1;       // steps of vectors as a fraction of those of matrices
  double weight_decay = 0;  // as a fraction of the step size

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("step_size", step_size);
    visit("length_power", length_power);
    visit("end", end);
    visit("vectors", vectors);
    visit("weight_decay", weight_decay);
  }

  // a of a matrix, or of a vector.
  double Size(const RateSchedule& schedule, int64_t step, int64_t num_steps, bool vector) const;
};

// A formula with what is known of it.
struct FittedFormula {
  StepFormula formula = {};
  // The numbers that the records do not determine, because all trainings have one length, say.
  // They are those of an untrained scheduler: length_power .5, end 1, vectors 1.
  std::vector<std::string> not_fitted = {};
  double log_error = 0;  // root mean square of the differences of ln a
  int64_t records = 0;   // with a step
};

// The formula of the least squares of ln a over all records with a step above 0; the weight decay
// is the median over the steps of matrices, or of vectors where there are no others. Throws Error
// if there is no such record.
FittedFormula FitStepFormula(const std::vector<SchedulerRecord>& records,
                             const RateSchedule& schedule);

// The scheduler of the file with the formula in place of its network: a LearnedScheduler of one
// hidden unit with weight 0, whose step size, weight decay and three weights are the formula.
// Throws Error where the formula's numbers are beyond the optimizer's ranges.
ThetaFile WithFormula(const ThetaFile& file, const StepFormula& formula);

}  // namespace lopt
