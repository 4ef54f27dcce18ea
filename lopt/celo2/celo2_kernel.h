#pragma once

#include <memory>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/lopt/celo2/celo2.h"

namespace lopt {

// The rule of Celo2 at the machine's speed: what its definition computes, to rounding. For each
// matrix one pass updates the moments and sums the squares of the features, a second runs the
// network with parameters in the lanes of the vectors; what is the same along a row or along a
// column goes into the bias of its first layer, the scales of the other features into its weights.
// A tensor is updated on one thread. The instruction set is that of base/isa.h; on one instruction
// set every call gives the same bits.
std::unique_ptr<UpdateRule> MakeCelo2Kernel(const Celo2Options& options, bool orthogonal,
                                            const Layout& params, std::span<const float> theta);

}  // namespace lopt
