#include "lopt/lopt/rate_schedule.h"

namespace lopt {

void VisitSchedule(FieldVisitor& v, RateSchedule* schedule) {
  v.Choice(
      "schedule", schedule, kRateSchedules,
      "What multiplies the step over the run: 1, 1 - step / steps, (1 + cos(pi step / steps)) / "
      "2, or the last after a rise over the first tenth of the run.");
}

std::string NeedOfNumSteps(const std::string& type, RateSchedule schedule) {
  if (schedule == RateSchedule::kConstant) return "";
  return type + " with schedule '" + NameOf("schedule", schedule, kRateSchedules) + "'";
}

double ScheduleFactor(RateSchedule schedule, const StepInfo& info) {
  return RateFactor(schedule, info.step, info.num_steps);
}

}  // namespace lopt
