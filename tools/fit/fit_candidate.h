#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// Throws Error unless a fit can start from it: a LearnedScheduler, whose steps can be multiplied
// within theta.
void CheckFitStart(const ThetaFile& start);

// The kinds of candidates (FitTrial::kind) that differ from each other, the start's first: without
// kUntrainedKind of a start that is untrained, without kAdamKind of one that has Adam's directions,
// and with kAdamVectorsKind of one that makes steps orthogonal.
std::vector<std::string> FitKindsOf(const ThetaFile& start);

// Whether the directions that a candidate of this kind has depend on a momentum that theta holds.
bool HasMomentum(const ThetaFile& start, const std::string& kind);

// What `trial` makes of the start. With Adam's directions, of all tensors or of vectors, the
// network that says how large steps are and how much decays stays as it is. kUntrainedKind has the
// network and the directions that meta-training begins with.
ThetaFile MakeCandidate(const ThetaFile& start, const FitTrial& trial);

// The rule of an optimizer for a task.
std::unique_ptr<UpdateRule> BindCandidate(const ThetaFile& candidate, const TaskFamily& task);

}  // namespace lopt
