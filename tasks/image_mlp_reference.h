#pragma once

#include <span>

#include "base/workspace.h"
#include "tasks/image_mlp_problem.h"

namespace lopt {

// Loss, and unless `gradient` is empty its gradient, in plain loops and double precision: what the
// fast kernel is compared with. A ReLU passes NaN on; its derivative is 0 unless its input is above
// 0.
MlpResult MlpLossReference(const MlpShape& shape, std::span<const float> params,
                           const MlpBatch& batch, std::span<float> gradient, Workspace& scratch);

}  // namespace lopt
