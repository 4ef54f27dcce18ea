#pragma once

#include <memory>
#include <vector>

#include "lopt/base/check.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/lopt_problem.h"

namespace lopt::checks {

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

}  // namespace lopt::checks
