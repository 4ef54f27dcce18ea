#pragma once

#include "base/workspace.h"
#include "tasks/image_mlp_problem.h"

namespace lopt {

// Loss and, where wanted, gradient in plain loops and double precision: what the fast kernel is
// compared with. Slopes are those of ActivationAt.
ClassifierResult MlpLossReference(const MlpShape& shape, const MlpEvaluation& evaluation,
                                  Workspace& scratch);

}  // namespace lopt
