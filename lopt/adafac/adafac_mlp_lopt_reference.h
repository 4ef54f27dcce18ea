#pragma once

#include <memory>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"

namespace lopt {

// The rule of AdafacMLPLOpt written as its definition reads, one parameter after the other in
// float32: the oracle of the fast kernel. `state` is the layout of AdafacMLPLOpt's state for
// `params`.
std::unique_ptr<UpdateRule> MakeAdafacMlpLoptReference(const AdafacMLPLOptOptions& options,
                                                       const Layout& params, const Layout& state,
                                                       std::span<const float> theta);

}  // namespace lopt
