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

}  // namespace lopt
