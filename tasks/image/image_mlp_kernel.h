#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// The mean softmax cross-entropy of the batch and, where wanted, its gradient and the logits, in
// single precision on the instruction set that base/isa.h names. Any number of examples and any
// layer sizes. The same inputs give the same bits on one instruction set.
ClassifierResult MlpLoss(const MlpShape& shape, const MlpEvaluation& evaluation,
                         Workspace& scratch);

}  // namespace lopt
