#pragma once

#include <memory>

#include "lopt/base/registry.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// The learned optimizers, built-in ones included.
Registry<LearnedOptimizer>& OptimizerRegistry();

// As OptimizerRegistry().Make, of the plain implementations where a type has one beside the fast
// one: what they compute on paths of their own, to compare with.
std::shared_ptr<const LearnedOptimizer> MakePlainOptimizer(const Config& config);

// An optimizer's config with all its options, also those that it leaves at their defaults.
Config ResolvedOptimizer(Config optimizer);

}  // namespace lopt
