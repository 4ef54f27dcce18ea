#pragma once

#include "base/registry.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

// The learned optimizers, built-in ones included.
Registry<LearnedOptimizer>& OptimizerRegistry();

}  // namespace lopt
