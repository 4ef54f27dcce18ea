#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lopt/base/check.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/truncation_schedule.h"

namespace lopt::checks {

// A gradient estimator of a problem that does not diverge, and what only its maker knows of it.
struct EstimatorUnderCheck {
  std::shared_ptr<const GradientEstimator> estimator;
  WorkerWeights weights;
  // Inner steps of one window, both of a pair counted; 0: not a fixed number.
  int64_t inner_steps = 0;
  // The same with perturbations of another standard deviation; none: it has no perturbations.
  std::function<std::shared_ptr<const GradientEstimator>(double std)> with_std = {};
  // Of other types or tasks, whose states are to be refused.
  std::vector<std::shared_ptr<const GradientEstimator>> others = {};
};

// What every GradientEstimator promises (estimators/gradient_estimator.h). Whether a gradient is
// the right one is not among it: what is right differs, so it takes a problem whose answer is known
// (tests/estimators_known_gradients_test.cc).
const std::vector<Check<EstimatorUnderCheck>>& EstimatorChecks();

// An inner problem with two thetas under which 50 of its inner steps have finite losses.
struct ProblemUnderCheck {
  std::shared_ptr<const InnerProblem> problem;
  std::vector<float> theta;
  std::vector<float> other_theta;
  // Whether a replica has the bits that it has alone; problems that advance replicas in lockstep
  // may differ by rounding, which is not compared.
  bool one_by_one = true;
  // Whether replicas of other keys start otherwise.
  bool random_starts = true;
  // Whether windows may go on behind a horizon; not where the optimizer needs the length of the
  // run.
  bool past_horizon = true;
};

// What every InnerProblem promises (estimators/inner_problem.h):
//   RunChecks(ProblemChecks(), ProblemUnderCheck{.problem = ..., .theta = {...}, ...})
const std::vector<Check<ProblemUnderCheck>>& ProblemChecks();

// Tasks trained by an optimizer in episodes of a few steps.
ProblemUnderCheck TrainedBy(const std::shared_ptr<const LearnedOptimizer>& optimizer,
                            const std::shared_ptr<const TaskFamily>& task,
                            const LoptProblemOptions& options = {
                                .random_initial_iteration_offset = 5});

// What every TruncationSchedule promises (estimators/truncation_schedule.h):
//   RunChecks(ScheduleChecks(), *schedule)
const std::vector<Check<TruncationSchedule>>& ScheduleChecks();

}  // namespace lopt::checks
