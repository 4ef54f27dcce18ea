#pragma once

#include <memory>
#include <span>

#include "base/layout.h"
#include "lopt/celo2.h"

namespace lopt {

// The rule of Celo2 at the machine's speed: what MakeCelo2Reference computes, to rounding. The
// instruction set is that of base/isa.h; on one instruction set every call gives the same bits.
std::unique_ptr<UpdateRule> MakeCelo2Kernel(const Celo2Options& options, bool orthogonal,
                                            const Layout& params, std::span<const float> theta);

}  // namespace lopt
