#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_conv_problem.h"

namespace lopt {

// The mean softmax cross-entropy of the batch and, where wanted, its gradient and the logits, in
// single precision on the instruction set that base/isa.h names. Of equal numbers in a pooling
// window the first is the largest, and the gradient is its. Any number of examples and any sizes.
// The same inputs give the same bits on one instruction set.
ClassifierResult ConvLoss(const ConvShape& shape, const ConvEvaluation& evaluation,
                          Workspace& scratch);

}  // namespace lopt
