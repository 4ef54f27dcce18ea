#pragma once

#include "lopt/base/check.h"
#include "lopt/tasks/task_family.h"

namespace lopt::checks {

// Gradients against differences of losses: those of the family itself, or the mean of noisy ones
// over many keys. Of gradients that are others on purpose only that they are finite.
void CheckTaskGradient(const TaskFamily& task, Findings* findings);

}  // namespace lopt::checks
