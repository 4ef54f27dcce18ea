#pragma once

#include <vector>

#include "lopt/base/check.h"
#include "lopt/estimators/truncation_schedule.h"

namespace lopt::checks {

// What every TruncationSchedule promises (estimators/truncation_schedule.h):
//   RunChecks(ScheduleChecks(), *schedule)
const std::vector<Check<TruncationSchedule>>& ScheduleChecks();

}  // namespace lopt::checks
