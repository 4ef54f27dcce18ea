#pragma once

#include <memory>

#include "lopt/base/registry.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// The learned optimizers, built-in ones included.
Registry<LearnedOptimizer>& OptimizerRegistry();

// An optimizer's config with all its options, also those that it leaves at their defaults.
Config ResolvedOptimizer(Config optimizer);

}  // namespace lopt
