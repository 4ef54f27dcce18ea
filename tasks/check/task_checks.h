#pragma once

#include <vector>

#include "base/check.h"
#include "tasks/task_family.h"

namespace lopt::checks {

// What every TaskFamily promises (tasks/task_family.h):
//   RunChecks(TaskChecks(), *family)
const std::vector<Check<TaskFamily>>& TaskChecks();

}  // namespace lopt::checks
