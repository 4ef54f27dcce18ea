#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_conv_problem.h"

namespace lopt {

// Loss and, where wanted, gradient in plain loops and double precision: what the fast kernel is
// compared with. Of equal numbers in a window the first is the largest, and the gradient is its.
ClassifierResult ConvLossReference(const ConvShape& shape, const ConvEvaluation& evaluation,
                                   Workspace& scratch);

// ImageConv with these losses.
class ReferenceImageConv : public ImageConv {
 public:
  using ImageConv::ImageConv;

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

}  // namespace lopt
