#pragma once

#include "lopt/base/choices.h"
#include "lopt/tasks/layers/activation_device.h"

namespace lopt {

inline constexpr Named<Activation> kActivations[] = {
    {Activation::kRelu, "relu"},       {Activation::kTanh, "tanh"},
    {Activation::kRelu6, "relu6"},     {Activation::kSelu, "selu"},
    {Activation::kCos, "cos"},         {Activation::kSin, "sin"},
    {Activation::kSigmoid, "sigmoid"}, {Activation::kSilu, "silu"},
    {Activation::kGelu, "gelu"},       {Activation::kLeakyRelu, "leaky_relu"},
    {Activation::kSign, "sign"}};

using Activated = ActivatedReal<double>;

// An activation at x and the factor that the gradient takes there: the derivative, 0 at the kinks
// of kRelu and kRelu6 and 1 at that of kLeakyRelu; for kSign, which has none, 1 for |x| <= 1 and 0
// beyond (straight through). Where it is 0 nothing comes through, NaN neither. All but the slopes
// of kinks pass NaN on.
Activated ActivationAt(Activation activation, double x);

}  // namespace lopt
