#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "base/key.h"
#include "estimators/gradient_estimator.h"
#include "estimators/inner_problem.h"

namespace lopt {

// What the estimators with antithetic pairs share. N pairs; replicas [0, N) run under theta + eps,
// [N, 2N) under theta - eps.

// What the key of a window is folded with, for each purpose.
enum WindowDraw : uint64_t {
  kPerturbationDraw = 0,
  kUnrollDraw = 1,
  kLengthDraw = 2,
  kStartDraw = 3,
  kOuterBatchDraw = 4
};

// [N, D], row n drawn from N(0, std^2 I) with FoldIn(key, n).
std::vector<float> SamplePerturbations(Key key, int64_t pairs, int64_t dimension, double std);

// [2N]: FoldIn(key, n) for both twins of pair n.
std::vector<Key> TwinKeys(Key key, int64_t pairs);

// The differences loss+ - loss- [K, N] of a trace [K, 2N]; 0 where either twin's loss cannot be
// used.
Eigen::ArrayXXd TwinDifferences(const UnrollTrace& trace);

// Sum and number of the losses of a trace that can be used: those where both twins' can.
struct LossSum {
  double sum = 0;
  int64_t count = 0;

  void Add(const UnrollTrace& trace);
  double Mean() const;  // NaN if there are none
};

StepCounts CountSteps(const UnrollTrace& trace);

// sum_n weights[n] rows[n] / (2 std^2 N), [D]: the antithetic gradient when weights are the
// differences of the pairs' losses and rows [N, D] their perturbations. Summed in float64, in the
// order of n.
Eigen::VectorXd WeightedPerturbations(std::span<const double> weights, std::span<const float> rows,
                                      double std);
// sum_n |weights[n] rows[n] / (2 std^2)|^2: of the gradients that the pairs give, each by itself.
double SumOfSquaredGradients(std::span<const double> weights, std::span<const float> rows,
                             double std);

}  // namespace lopt
