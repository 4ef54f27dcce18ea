#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/estimators/diagnostics.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/inner_problem.h"

namespace lopt {

// What the estimators with antithetic pairs share. N pairs; replicas [0, N) run under theta + eps,
// [N, 2N) under theta - eps.

// What the key of a window is folded with, for each purpose.
enum WindowDraw : uint64_t {
  kPerturbationDraw = 0,
  kUnrollDraw = 1,
  kWindowLengthDraw = 2,
  kStartDraw = 3,
  kOuterBatchDraw = 4
};

// [2N]: FoldIn(key, n) for both replicas of pair n.
std::vector<Key> PairKeys(Key key, int64_t pairs);

// The differences loss+ - loss- [K, N] of a trace [K, 2N]; 0 where either replica's loss cannot be
// used.
Eigen::ArrayXXd PairDifferences(const UnrollTrace& trace);

// Sum and number of the losses of a trace that can be used: those where both replicas' can.
struct LossSum {
  double sum = 0;     // of the meta-losses of both replicas
  int64_t count = 0;  // of losses

  // Adds those of a trace [K, 2N].
  void Add(const UnrollTrace& trace);
  double Mean() const;  // NaN if there are none
};

// The inner steps of a trace, of all its replicas.
StepCounts CountSteps(const UnrollTrace& trace);

// sum_n weights[n] rows[n] / (2 std^2 N), [D]: the antithetic gradient when weights are the
// differences of the pairs' losses and rows [N, D] their perturbations. Summed in float64, in the
// order of n.
Eigen::VectorXd WeightedPerturbations(std::span<const double> weights, std::span<const float> rows,
                                      double std);
// sum_n |weights[n] rows[n] / (2 std^2)|^2: of the gradients that the pairs give, each by itself.
double SumOfSquaredGradients(std::span<const double> weights, std::span<const float> rows,
                             double std);

// Throws Error if perturbations of this std are so small that rounding to float32 leaves more than
// half of theta's numbers as they are: losses would not differ, and theta would not train.
void RequireMoves(std::span<const float> theta, double std);

// Throws Error if the directions are orthogonal and `problem` runs on a device.
void RequireDirections(const char* type, Directions directions, const InnerProblem& problem);

// One estimate of N pairs, which the key of its window decides: their perturbations, what
// both replicas of a pair draw from, their runs, and what every estimate tells of them.
class AntitheticPairs {
 public:
  // Perturbations of their own in this window: those of FoldIn(key, kPerturbationDraw). Throws
  // Error as RequireMoves and RequireDirections do.
  AntitheticPairs(const InnerProblem& problem, const WorkerWeights& weights, Key key, int64_t pairs,
                  double std, Directions directions = Directions::kIndependent);
  // Perturbations that the estimator names. Throws Error as RequireMoves and
  // RequireDirections do.
  AntitheticPairs(const InnerProblem& problem, const WorkerWeights& weights, Key key,
                  Perturbations perturbations);

  // N.
  int64_t pairs() const { return perturbations_.pairs(); }
  // Those that the pairs run under, N of them.
  const Perturbations& perturbations() const { return perturbations_; }

  // Fresh pairs, [2N], each replica begun under its own row of theta. Without a horizon the
  // problem's own schedule gives the episodes' lengths.
  UnrollState Start(std::optional<int64_t> horizon) const;
  // Advances the pairs [2N] and takes note of their losses. A window may be run in pieces.
  UnrollTrace Run(int64_t steps, UnrollState* replicas);
  // Advances replicas [N], one of each pair's task, under theta itself; they draw what the pair
  // draws. Their steps are counted, their losses are not.
  void RunTheta(int64_t steps, UnrollState* replicas);
  // [N]: the pairs' difference of what counts of the mean meta-loss over `samples` fresh outer
  // batches, as they stand; a batch that either cannot use is left out, and 0 where all are.
  Eigen::ArrayXd MetaLossDifferences(int64_t samples, const UnrollState& replicas) const;

  // The estimate for all that has run, whose gradient is
  // sum_n differences[n] eps_n / (2 std^2 N).
  GradientEstimate Estimate(std::span<const double> differences) const;
  // The same with a gradient [D] of another formula; `squares` is the sum over the pairs of the
  // squared norms of the gradients that they give by themselves.
  GradientEstimate Estimate(Eigen::VectorXf gradient, double squares) const;

 private:
  ThetaRows rows() const;

  const InnerProblem& problem_;
  const WorkerWeights& weights_;
  Key key_;
  Perturbations perturbations_;
  std::vector<Key> keys_;  // [2N]
  StepCounts counts_;
  LossSum loss_;
  LossDiagnostics losses_;
  NotedMeans noted_;
};

}  // namespace lopt
