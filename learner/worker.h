#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/aggregation.h"

namespace lopt {

// The estimators of an experiment, in the order of its config. In a list for one worker those that
// it does not run are null; their states stay empty, and their reports have no numbers.
using Estimators = std::vector<std::shared_ptr<const ConfiguredEstimator>>;

// "<index>_<task>", by which metrics and messages name estimator `index`.
std::string EstimatorName(const Estimators& estimators, size_t index);

// A block of logical workers: [first, first + count).
struct WorkerBlock {
  int64_t first = 0;  // the lowest
  int64_t count = 0;  // of workers
};

// Everything of one logical worker that lives between two updates.
struct WorkerState {
  int64_t windows = 0;                          // run so far; keys the next window's draws
  std::vector<EstimatorState> estimators = {};  // in the order of Estimators
  bool operator==(const WorkerState&) const = default;
};

// The sum of the gradients of workers in a row, which one process added up
// (learner/aggregation.h).
struct PartialSum {
  int64_t gradients = 0;     // how many; 0: there is no sum
  Eigen::VectorXd sum = {};  // [D]

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("gradients", gradients);
    visit("sum", sum);
  }
};

// What one estimator gave in one update of one worker: means over its windows, sums for counts.
struct EstimatorReport {
  double mean_loss = 0;      // over the windows that have one; NaN if none has
  double gradient_norm = 0;  // of the mean over its windows
  StepCounts counts = {};    // sums over its windows
  Diagnostics metrics = {};  // means over its windows
  // With Weighting::kEqualNorm, of an estimator that was run: its weight and gradient [D].
  double weight = 0;
  Eigen::VectorXf gradient = {};  // [D], the mean over its windows; else empty
  PartialSum partial = {};        // in its place, as AggregatedGradient has it

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("mean_loss", mean_loss);
    visit("gradient_norm", gradient_norm);
    visit("counts", counts);
    visit("metrics", metrics);
    visit("weight", weight);
    visit("gradient", gradient);
    visit("partial", partial);
  }
};

// What a worker hands to the learner for one update.
struct AggregatedGradient {
  int64_t outer_step = 0;         // of the weights it was computed under
  Eigen::VectorXf gradient = {};  // [D], the estimators' weighted mean
  double mean_loss = 0;    // the same mean, over the estimators that have one; NaN if none has
  StepCounts counts = {};  // sums over the estimators
  std::vector<EstimatorReport> estimators = {};  // in the order of Estimators
  // In place of the gradients of the workers of a node of a tree, at the first of them.
  PartialSum partial = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("outer_step", outer_step);
    visit("gradient", gradient);
    visit("partial", partial);
    visit("mean_loss", mean_loss);
    visit("counts", counts);
    visit("estimators", estimators);
  }
};

// Keys are derived as follows, whoever computes a worker:
//   run      KeyFromSeed(seed)
//   theta    FoldIn(run, 2^32), the initial theta
//   worker w FoldIn(run, w)
//   start    FoldIn(FoldIn(worker, 0), e), the initial state of estimator e
//   window n FoldIn(FoldIn(FoldIn(worker, 1), n), e), window n (from 0) of estimator e
Key ThetaKey(Key run_key);
// The key of logical worker `worker`, from 0.
Key WorkerKey(Key run_key, int64_t worker);

// The state of a worker that has run no window. Throws Error unless it has an estimator, all are
// for theta's size, no weight is negative and one is positive.
WorkerState InitWorkerState(const WorkerWeights& weights, const Estimators& estimators,
                            Key worker_key);
// A state with the arrays and shapes of that one, whose numbers mean nothing: no inner step is run.
// Throws Error as InitWorkerState does.
WorkerState OutlineWorkerState(const WorkerWeights& weights, const Estimators& estimators,
                               Key worker_key);

// Runs `windows` >= 1 windows of every estimator under the same weights and takes the mean, which
// is what the worker puts to the learner ("to_put"). The
// estimators run in parallel on the thread pool around the call, the windows of one after the
// other; sums are float64 in the order of windows and estimators, so the bits do not depend on the
// threads. Nothing that is not finite is replaced: it reaches the learner, which has the policy for
// it.
AggregatedGradient GradientWorkerCompute(const WorkerWeights& weights, const Estimators& estimators,
                                         int64_t windows, Key worker_key, WorkerState* state,
                                         Weighting weighting = Weighting::kFixed);

// The same for several workers in parallel; worker_keys[i] and states[i] belong to one worker.
std::vector<AggregatedGradient> ComputeWorkers(const WorkerWeights& weights,
                                               const Estimators& estimators, int64_t windows,
                                               std::span<const Key> worker_keys,
                                               std::span<WorkerState> states,
                                               Weighting weighting = Weighting::kFixed);

// The losses [K] of K thetas of D numbers each, for an optimizer of theta from elsewhere that asks
// for losses and not for gradients, such as CMA-ES: the weighted mean over the estimators, each a
// FullES, of FullES::MetaLosses. The draws are those that GradientWorkerCompute takes in window
// `step`, at outer step `step`: the same for all thetas, others in another step. Runs in parallel
// on the thread pool around the call, on whose threads no bit depends. Throws Error as
// InitWorkerState and FullES::MetaLosses do, if `step` is negative, or if an estimator is of
// another type.
std::vector<double> MetaLosses(std::span<const Eigen::VectorXf> thetas,
                               const Estimators& estimators, Key worker_key, int64_t step);

// Puts the sums of the tree's nodes, as large as can be, in place of the gradients of workers
// first, first + 1, ..., of `workers` in all: what a process sends whose learner adds up as
// GradientSum::kTree. A node of one worker keeps its gradient.
void AddUpNodes(int64_t first, int64_t workers, std::span<AggregatedGradient> gradients);

}  // namespace lopt
