#pragma once

#include <memory>

#include "lopt/base/fields.h"
#include "lopt/estimators/truncated_estimator.h"

namespace lopt {

// Truncated evolution strategies: each window starts both replicas of a pair from the same carried
// state. Biased, because a window's losses do not see what earlier windows did to that state.
// State: the unroll state that the N tasks carry.
class TruncatedES : public TruncatedEstimator {
 public:
  // What a window starts from: what the positive replicas made of the windows before it, or what
  // theta itself, without a perturbation, made of them, for half as many inner steps again.
  enum class Carried { kPositive, kMean };
  static constexpr Named<Carried> kCarried[] = {{Carried::kPositive, "positive"},
                                                {Carried::kMean, "mean"}};

  // The keys of a config.
  struct Options : TruncatedOptions {
    Carried carried = Carried::kPositive;
    void Visit(FieldVisitor& v);
  };

  // Throws Error if an option is not valid.
  TruncatedES(std::shared_ptr<const InnerProblem> problem, const Options& options);

 private:
  EstimatorState Begin(const WorkerWeights& weights, Key key, Key lasting) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  Carried carried_;
};

}  // namespace lopt
