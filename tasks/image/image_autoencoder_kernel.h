#pragma once

#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// The mean over the examples and pixels of (pixel - sigmoid(output))^2, for a network with as many
// outputs as inputs, and where wanted its gradient. In single precision on the instruction set that
// base/isa.h names; any number of examples and any layer sizes. The same inputs give the same bits
// on one instruction set.
float AutoencoderLoss(const MlpShape& shape, const MlpEvaluation& evaluation, Workspace& scratch);

// sigmoid(output) of every example, [examples, pixels].
void Reconstruct(const MlpShape& shape, const MlpEvaluation& evaluation, std::span<float> images,
                 Workspace& scratch);

}  // namespace lopt
