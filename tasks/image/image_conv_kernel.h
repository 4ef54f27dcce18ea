#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_conv_problem.h"

namespace lopt {

// What ConvLossReference computes, in single precision on the instruction set that base/isa.h
// names. Any number of examples and any sizes. The same inputs give the same bits on one
// instruction set.
ClassifierResult ConvLoss(const ConvShape& shape, const ConvEvaluation& evaluation,
                          Workspace& scratch);

}  // namespace lopt
