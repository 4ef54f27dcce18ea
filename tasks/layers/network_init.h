#pragma once

#include <span>

#include "lopt/base/key.h"
#include "lopt/base/layout.h"

namespace lopt {

// Initial params of a network as haiku draws them: weights [..., out] from a normal distribution
// cut off at two standard deviations and divided by the root of the product of the sizes before
// `out`, each tensor with a key of its own in their order; a vector
// is 0, and 1 if it is called "scale".
void InitNetwork(const Layout& layout, Key key, std::span<float> params);

}  // namespace lopt
