#pragma once

#include <memory>
#include <optional>
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

// The kinds of candidates (FitTrial::kind) that differ from each other on such params, the start's
// first: without kAdamKind of a start that has Adam's directions. A start that makes steps
// orthogonal, tensor by tensor, has kPlainKind, too, where there are matrices kPlainAdamKind, and
// where there are matrices and vectors kAdamVectorsKind.
std::vector<std::string> FitKindsOf(const ThetaFile& start, const Layout& params);

// The momentum that theta holds for the directions of a candidate of this kind, the first of two;
// none if they do not depend on one.
std::optional<double> OwnMomentum(const ThetaFile& start, const std::string& kind);

// What `trial` makes of the start. With Adam's directions, of all tensors or of vectors, the
// network that says how large steps are and how much decays stays as it is. kPlainKind and
// kPlainAdamKind know nothing of meta-training: all of their steps are as long as step_size and the
// schedule say.
ThetaFile MakeCandidate(const ThetaFile& start, const FitTrial& trial);

// The rule of an optimizer for a task.
std::unique_ptr<UpdateRule> BindCandidate(const ThetaFile& candidate, const TaskFamily& task);

}  // namespace lopt
