#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/distill/scheduler_records.h"
#include "lopt/tools/distill/step_formula.h"

namespace lopt {

// One task, trained with the network and with the formula: interquartile means over the seeds of
// the test loss; none that is not finite.
struct DistilledTask {
  std::string task = {};
  int64_t steps = 0;
  std::optional<double> network = {};
  std::optional<double> formula = {};

  // The formula's as a fraction of the network's; none unless both are above 0.
  std::optional<double> Ratio() const;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("task", task);
    visit("steps", steps);
    visit("network", network);
    visit("formula", formula);
  }
};

// What formula.json holds.
struct Distilled {
  static constexpr const char* kFormat = "lopt distill 1";

  std::string theta = {};  // the file
  StepFormula formula = {};
  std::vector<std::string> not_fitted = {};  // as in FittedFormula
  double log_error = 0;                      // likewise
  int64_t seeds = 0;
  std::vector<DistilledTask> tasks = {};
  // The geometric mean and the median of the ratios; none where there are none.
  std::optional<double> mean_ratio = {};
  std::optional<double> median_ratio = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("theta", theta);
    visit("formula", formula);
    visit("not_fitted", not_fitted);
    visit("log_error", log_error);
    visit("seeds", seeds);
    visit("tasks", tasks);
    visit("mean_ratio", mean_ratio);
    visit("median_ratio", median_ratio);
  }
};

// The steps of the file's scheduler in trainings of every task with every seed: of each training
// those of up to kRecordedSteps updates, evenly spaced. In parallel on the thread pool around the
// call.
inline constexpr int64_t kRecordedSteps = 100;
std::vector<SchedulerRecord> RecordTrainings(const ThetaFile& file, const EvaluationConfig& config);

// Trains the tasks with both files' optimizers, likewise in parallel, and judges them.
std::vector<DistilledTask> CompareFormula(const ThetaFile& network, const ThetaFile& formula,
                                          const EvaluationConfig& config);

// Sets the ratios of the tasks.
void SumUp(Distilled* distilled);

// Sizes of steps over progress: geometric means over the records of one kind of tensor, each times
// (num_steps / 1000)^length_power, in bins of equal width, and their quartiles. Bins without a
// record are NaN.
struct StepCurve {
  static constexpr int64_t kBins = 20;

  std::vector<double> mean = {};  // [kBins]
  std::vector<double> low = {};   // likewise
  std::vector<double> high = {};  // likewise
};
StepCurve CurveOf(const std::vector<SchedulerRecord>& records, double length_power);

// What is printed, in at most 80 columns unless names of tasks are long; and one HTML page with the
// curves.
std::string DistilledText(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                          const RateSchedule& schedule);
std::string DistilledPage(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                          const RateSchedule& schedule, const std::string& version);

}  // namespace lopt
