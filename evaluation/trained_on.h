#pragma once

#include <optional>

#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_config.h"

namespace lopt {

// The tasks of an evaluation, with those of their numbers of steps, on which the meta-training of a
// theta file (ThetaFile::config, trained_horizon) has trained: one of its estimators has a task of
// the same type with the same options (of two FixedTasks, the same name), by itself, in its own
// units if ReparamWeights draws them, or in a SampledFamily; both draw their data or both read
// files, and its trainings were as long (where their lengths say so, else where some training was).
// Nothing where the config names no task, so that what it trained on is unknown. Throws Error if
// the options of a task of the evaluation are not right.
std::optional<TaskSteps> TrainedOn(const Config& meta_training, int64_t trained_horizon,
                                   const EvaluationConfig& evaluation);

// Sets trained_on and trained_before of every learned optimizer.
void SetTrainedOn(const EvaluationConfig& evaluation, EvaluatedOptimizers* optimizers);

}  // namespace lopt
