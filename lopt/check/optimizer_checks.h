#pragma once

#include <cstdint>
#include <vector>

#include "lopt/base/check.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt::checks {

// What every LearnedOptimizer and its UpdateRules promise (lopt/learned_optimizer.h):
//   RunChecks(OptimizerChecks(), *optimizer)
const std::vector<Check<LearnedOptimizer>>& OptimizerChecks();

// An optimizer's theta near its initial one.
std::vector<float> DrawTheta(const LearnedOptimizer& optimizer, uint64_t seed);

}  // namespace lopt::checks
