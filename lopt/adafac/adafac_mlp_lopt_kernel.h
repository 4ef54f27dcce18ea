#pragma once

#include <memory>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"

namespace lopt {

// The rule of AdafacMLPLOpt at the machine's speed: what its definition computes, to rounding.
// One pass over a tensor updates the factored moments, a second the momenta and the mean
// squares of the features, a third runs the network with parameters in the lanes of the vectors.
// What the first layer gets from rows and columns is formed once for each row and each column. Time
// features, scales, pieces of large tensors and instruction sets are as in MakeMlpLoptKernel.
std::unique_ptr<UpdateRule> MakeAdafacMlpLoptKernel(const AdafacMLPLOptOptions& options,
                                                    const Layout& params, const Layout& state,
                                                    std::span<const float> theta);

}  // namespace lopt
