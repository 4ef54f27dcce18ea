#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"

namespace lopt {

// The options of an optimizer's config that are optimizers themselves, by name, in their order:
// "optimizer" of a LearnedScheduler, "matrices" and "vectors" of a MatricesAndVectors. Of options
// that are left at their defaults there are none: give ResolvedOptimizer's config for all.
std::vector<std::pair<std::string, Config>> InnerOptimizers(const Config& optimizer);

}  // namespace lopt
