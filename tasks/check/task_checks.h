#pragma once

#include <vector>

#include "lopt/base/check.h"
#include "lopt/tasks/task_family.h"

namespace lopt::checks {

// What every TaskFamily promises (tasks/task_family.h):
//   RunChecks(TaskChecks(), *family)
const std::vector<Check<TaskFamily>>& TaskChecks();

}  // namespace lopt::checks
