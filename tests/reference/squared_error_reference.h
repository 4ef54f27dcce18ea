#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// SquaredErrorLoss (tasks/image/squared_error_kernel.h) in plain loops and double precision.
float SquaredErrorLossReference(const MlpShape& shape, const MlpEvaluation& evaluation,
                                Workspace& scratch);

}  // namespace lopt
