#pragma once

#include <memory>
#include <string>

#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// Throws Error unless a fit can start from it: a LearnedScheduler, whose steps can be multiplied
// within theta.
void CheckFitStart(const ThetaFile& start);

// Whether the start has directions that are not Adam's, so that Adam's are others.
bool HasOtherDirections(const ThetaFile& start);

// Whether the directions that a candidate has depend on a momentum that theta holds.
bool HasMomentum(const ThetaFile& start, bool adam);

// What `trial` makes of the start. With Adam's directions the network that says how large steps are
// and how much decays stays as it is.
ThetaFile MakeCandidate(const ThetaFile& start, const FitTrial& trial);

// The rule of an optimizer for a task.
std::unique_ptr<UpdateRule> BindCandidate(const ThetaFile& candidate, const TaskFamily& task);

}  // namespace lopt
