#pragma once

#include <memory>

#include "lopt/base/config.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// As OptimizerRegistry().Make, but of the references where a type has a kernel, also inside of
// OrthogonalSteps, MatricesAndVectors, LearnedScheduler and UnknownLength.
std::shared_ptr<const LearnedOptimizer> MakeReferenceOptimizer(const Config& config);

}  // namespace lopt
