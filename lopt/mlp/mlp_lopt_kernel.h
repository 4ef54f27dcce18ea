#pragma once

#include <memory>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/lopt/mlp/mlp_lopt.h"

namespace lopt {

// The rule of MLPLOpt at the machine's speed: what its definition computes, to rounding. One pass
// over a tensor updates its momenta and their mean squares, a second runs the network with
// parameters in the lanes of the vectors (hidden units in the lanes for the last size % 16). The
// time features are folded into the first bias once per step, the scales of the other features
// into the first weights once per tensor. The first pass over more than 65,536 parameters and the
// second over more than 9,216, unless the network is narrow, go in pieces, in parallel on the pool
// around the call. The instruction set is that of base/isa.h; on one instruction set every call
// gives the same bits. `state` is the layout of MLPLOpt's state for `params`.
std::unique_ptr<UpdateRule> MakeMlpLoptKernel(const MLPLOptOptions& options, const Layout& params,
                                              const Layout& state, std::span<const float> theta);

}  // namespace lopt
