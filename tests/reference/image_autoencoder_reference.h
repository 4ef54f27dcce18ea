#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// AutoencoderLoss (tasks/image/image_autoencoder_kernel.h) in plain loops and double precision.
float AutoencoderLossReference(const MlpShape& shape, const MlpEvaluation& evaluation,
                               Workspace& scratch);

}  // namespace lopt
