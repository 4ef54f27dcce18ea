#pragma once

#include <string>
#include <vector>

#include "lopt/base/layout.h"

namespace lopt {

// The tensors of theta whose whole name matches one of the patterns, which are regular expressions
// (ECMAScript's): "mlp/linear_0/.*" are the weights and biases of a network's first layer. Throws
// Error, with the names there are, if a pattern is not a regular expression or matches no tensor,
// or if all tensors are matched.
std::vector<LayoutEntry> FrozenTensors(const Layout& theta,
                                       const std::vector<std::string>& patterns);

}  // namespace lopt
