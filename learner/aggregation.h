#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/choices.h"

namespace lopt {

// In which order the gradients of an update's workers are added up, always in float64. Another
// order is another result, by rounding.
enum class GradientSum {
  kInOrder,  // one after the other, in the order of the workers
  kTree      // as a binary tree over the workers: a process adds up those that it computed
};
inline constexpr Named<GradientSum> kGradientSums[] = {{GradientSum::kInOrder, "in_order"},
                                                       {GradientSum::kTree, "tree"}};

// Nodes of the tree are the workers [first, first + 2^level), `first` being a multiple of 2^level.
// A node's sum is that of its lower half plus that of its upper half; of one worker it is the
// gradient. What is not there (workers that are late, numbers beyond the last worker) has no part
// in it: the sum of a node of which one half is there is that half's. So a sum depends on the
// gradients in the node alone, and not on who adds them up.

// A worker's gradient, or the sum of a node's.
struct Addend {
  int64_t first = 0;                                                       // the (first) worker
  std::variant<std::span<const float>, std::span<const double>> row = {};  // [D]
};

// How many workers the largest node holds that begins with worker `first` and lies within
// [first, end), of `workers` workers in all; those beyond the last count as inside.
int64_t LargestNode(int64_t first, int64_t end, int64_t workers);

// The sum [size] of rows [size] as one of these orders has it; rows are in the order of `first`.
// With weights, one a row, of the rows each times its weight: in order only. Elements are added in
// parallel on the pool around the call, each on one thread, so that no bit depends on the pool.
// Throws Error if the numbers of rows and weights disagree.
Eigen::VectorXd AddUp(GradientSum order, std::span<const Addend> rows, int64_t size,
                      std::span<const double> weights = {});

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

// What to do with an aggregated gradient that is not finite.
enum class NonFiniteGradient {
  kSkip,  // count a skipped update: theta and theta_opt stay, the outer step advances
  kAbort  // throw Error
};

inline constexpr Named<NonFiniteGradient> kNonFiniteGradients[] = {
    {NonFiniteGradient::kSkip, "skip"}, {NonFiniteGradient::kAbort, "abort"}};

}  // namespace lopt
