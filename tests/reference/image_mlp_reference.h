#pragma once

#include <functional>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// The loss of one example of the batch from the network's outputs, which become its gradient.
using LossOfOutputs = std::function<double(int64_t example, std::span<double> outputs)>;

// The mean loss and, where wanted, its gradient, in plain loops and double precision: what the fast
// kernels are compared with. Slopes are those of ActivatedAt.
double MlpReference(const MlpShape& shape, const MlpEvaluation& evaluation,
                    const LossOfOutputs& loss, Workspace& scratch);

// The same of a classifier.
ClassifierResult MlpLossReference(const MlpShape& shape, const MlpEvaluation& evaluation,
                                  Workspace& scratch);

// ImageMlp with these losses.
class ReferenceImageMlp : public ImageMlp {
 public:
  using ImageMlp::ImageMlp;

 private:
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
};

}  // namespace lopt
