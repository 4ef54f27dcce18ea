#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/estimators/differentiable_problem.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/truncation_schedule.h"

namespace lopt {

// The exact gradient of whole episodes, by backpropagation: every estimate starts fresh tasks and
// runs them for one length, the same for all of them. No state. It owns the schedule, so the
// problem's own must be NeverEnding.
class FullGrad : public GradientEstimator {
 public:
  // What an estimate differentiates: the mean of all losses of all tasks, or of their last ones.
  enum class LossType { kAvg, kLast };
  static constexpr Named<LossType> kLossTypes[] = {{LossType::kAvg, "avg"},
                                                   {LossType::kLast, "last"}};

  // The keys of a config.
  struct Options {
    int64_t num_tasks = 8;  // N
    LossType loss_type = LossType::kAvg;
    void Visit(FieldVisitor& v);
  };

  // Throws Error if an option is not valid or the problem's episodes end by themselves.
  FullGrad(std::shared_ptr<const DifferentiableProblem> problem,
           std::shared_ptr<const TruncationSchedule> schedule, const Options& options);

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  std::shared_ptr<const DifferentiableProblem> problem_;
  std::shared_ptr<const TruncationSchedule> schedule_;
  Options options_;
};

}  // namespace lopt
