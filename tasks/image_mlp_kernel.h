#pragma once

#include <span>

#include "base/workspace.h"
#include "tasks/image_mlp_problem.h"

namespace lopt {

// What MlpLossReference computes, in single precision on the instruction set that base/isa.h names:
// the loss, and unless `gradient` is empty its gradient. Any number of examples and any layer
// sizes. The same inputs give the same bits on one instruction set.
MlpResult MlpLoss(const MlpShape& shape, std::span<const float> params, const MlpBatch& batch,
                  std::span<float> gradient, Workspace& scratch);

}  // namespace lopt
