#pragma once

#include <Eigen/Core>
#include <span>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/choices.h"

namespace lopt {

// How the gradients of an experiment's estimators become one.
enum class Weighting {
  kFixed,     // every worker takes the mean of its estimators' with their weights
  kEqualNorm  // the learner first divides each estimator's by its running norm: EqualNormMean
};
inline constexpr Named<Weighting> kWeightings[] = {{Weighting::kFixed, "fixed"},
                                                   {Weighting::kEqualNorm, "equal_norm"}};

// One estimator's part in an update.
struct EstimatorGradient {
  double weight = 0;              // of the estimator in the mean, at least 0
  Eigen::VectorXd gradient = {};  // [D], the mean over the workers that ran it; [0] if none did
};

// The decay of the running norms.
inline constexpr double kNormDecay = 0.99;

// The weighted mean of the estimators' gradients G_e, each divided by its running norm:
//   sum_e w_e G_e / N_e / sum_e w_e, over the estimators that some worker ran,
//   n_e <- .99 n_e + .01 |G_e|,  k_e <- k_e + 1,  N_e = n_e / (1 - .99^k_e)
// from n_e = k_e = 0, with the present gradient: at an estimator's first one N_e is its norm. So a
// weight says which part of a step an estimator has, whatever the scale of its loss. A G_e of norm
// zero counts in the sum of the weights and changes neither n_e nor k_e; nor does one that is not
// finite, with which the result is not finite either. Of a single estimator the weight has no
// effect. All in float64, in the order of the estimators.
//
// `state` is empty or "sum" [E] float64, the n_e, and "count" [E] int64, the k_e. Throws Error if
// it is of another number of estimators.
Eigen::VectorXd EqualNormMean(std::span<const EstimatorGradient> estimators, NamedArrays* state);

// The N_e of such a state; 0 for an estimator whose gradients were all zero. Of an empty one:
// nothing.
std::vector<double> RunningNorms(const NamedArrays& state);

}  // namespace lopt
