#pragma once

#include <memory>

#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// The rule with every step multiplied: with p the params before an update and u what the rule makes
// of them they become p + multiplier (u - p) in float32, which is what the optimizers for LibTorch
// and PyTorch call lr. The state is the rule's own. A multiplier of exactly 1 gives the rule
// itself. Throws Error unless the multiplier is positive and finite, and where steps of the params
// say nothing, because a training stands for others that are in the state (UpdateRule::EvalParams).
std::unique_ptr<UpdateRule> ScaleSteps(std::unique_ptr<UpdateRule> rule, float multiplier);

}  // namespace lopt
