#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/estimators/theta_rows.h"
#include "lopt/estimators/truncated_estimator.h"

namespace lopt {

// Evolution strategies that are unbiased although windows are shorter than episodes, because a loss
// is weighted by all the perturbations that its episode has run under
// (estimators/persistent_gradient.h). Those below differ in one thing, how long a perturbation
// lasts. docs/estimators.md says when to use which.
//
// State beside `unroll/`, that of both replicas of each pair: where an episode has several
// perturbations `felt` [N, D], the accumulator: the sum of those of each running episode's blocks
// that are over; where perturbations outlive windows `episode` [N], how many episodes of each pair
// have ended, and `key` [2], of which, with pair, episode and block, the perturbations are a
// function.
class PersistentES : public TruncatedEstimator {
 protected:
  // Throws Error that begins with `type` if an option is not valid.
  PersistentES(const char* type, std::shared_ptr<const InnerProblem> problem,
               const TruncatedOptions& options, PerturbationClock clock);

 private:
  EstimatorState Begin(const WorkerWeights& weights, Key key, Key lasting) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;
  bool HasAccumulator() const { return clock_.block != PerturbationClock::kEpisode; }
  bool OutliveWindows() const { return clock_.block != PerturbationClock::kWindow; }
  Perturbations NamePerturbations(Key key, const EstimatorState& state) const;

  PerturbationClock clock_;
};

// Persistent evolution strategies (Vicol, Metz and Sohl-Dickstein 2021): new perturbations in every
// window.
class TruncatedPES : public PersistentES {
 public:
  // Throws Error if an option is not valid.
  TruncatedPES(std::shared_ptr<const InnerProblem> problem, const TruncatedOptions& options);
};

// Noise-reuse evolution strategies (Li, Harrison, Sohl-Dickstein, Smith and Metz 2023), ES-Single
// (Vicol 2023): one perturbation for a whole episode.
class TruncatedNRES : public PersistentES {
 public:
  // Throws Error if an option is not valid.
  TruncatedNRES(std::shared_ptr<const InnerProblem> problem, const TruncatedOptions& options);
};

// What lies between the two (Li et al. 2023): new perturbations at inner steps 0, K, 2K, ... of an
// episode.
class GPESK : public PersistentES {
 public:
  // The keys of a config.
  struct Options : TruncatedOptions {
    int64_t block = 0;  // K; must be given
    void Visit(FieldVisitor& v);
  };

  // Throws Error if an option is not valid.
  GPESK(std::shared_ptr<const InnerProblem> problem, const Options& options);
};

}  // namespace lopt
