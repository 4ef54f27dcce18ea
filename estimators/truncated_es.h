#pragma once

#include <memory>

#include "estimators/gradient_estimator.h"
#include "estimators/truncated_pes.h"

namespace lopt {

// Truncated evolution strategies: each window starts both twins from the same carried state, that
// of the positive twin. Biased, because a window's losses do not see what earlier windows did to
// that state. State: the unroll state of both twins; that of the negative ones is not read.
class TruncatedES : public GradientEstimator {
 public:
  // Throws Error if an option is not valid.
  TruncatedES(std::shared_ptr<const InnerProblem> problem, const TruncatedOptions& options);

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  std::shared_ptr<const InnerProblem> problem_;
  TruncatedOptions options_;
};

}  // namespace lopt
