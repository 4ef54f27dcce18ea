#pragma once

#include "lopt/base/check.h"
#include "lopt/tasks/task_family.h"

namespace lopt::checks {

// Layouts and what Sample and Init draw (tasks/task_family.h).
void CheckTaskLayouts(const TaskFamily& task, Findings* findings);
void CheckTaskDraws(const TaskFamily& task, Findings* findings);

}  // namespace lopt::checks
