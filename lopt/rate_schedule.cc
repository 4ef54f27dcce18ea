#include "lopt/rate_schedule.h"

#include <cmath>
#include <numbers>

namespace lopt {

void VisitSchedule(FieldVisitor& v, RateSchedule* schedule) {
  v.Choice("schedule", schedule, kRateSchedules,
           "What multiplies the step over the run: 1, 1 - step / steps, or (1 + cos(pi step / "
           "steps)) / 2.");
}

std::string NeedOfNumSteps(const std::string& type, RateSchedule schedule) {
  if (schedule == RateSchedule::kConstant) return "";
  return type + " with schedule '" + NameOf("schedule", schedule, kRateSchedules) + "'";
}

double ScheduleFactor(RateSchedule schedule, const StepInfo& info) {
  if (schedule == RateSchedule::kConstant) return 1;
  const double done = static_cast<double>(info.step) / static_cast<double>(info.num_steps);
  return schedule == RateSchedule::kLinear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace lopt
