#pragma once

#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// The mean over the examples and outputs of (target - output)^2 and, where wanted, its gradient.
// MlpEvaluation::targets says what targets and outputs are. In single precision on the instruction
// set that base/isa.h names; any number of examples and any layer sizes. The same inputs give the
// same bits on one instruction set.
float SquaredErrorLoss(const MlpShape& shape, const MlpEvaluation& evaluation, Workspace& scratch);

// The outputs for every example, [examples, outputs].
void MlpOutputs(const MlpShape& shape, const MlpEvaluation& evaluation, std::span<float> outputs,
                Workspace& scratch);

}  // namespace lopt
