#pragma once

#include "base/choices.h"

namespace lopt {

// The functions between the layers of a network. kSilu is also called swish. kGelu is the
// approximation by tanh, which is JAX's default. kLeakyRelu has the slope -1/2 below 0, that of the
// tasks of google/learned_optimization. kSign is 1 from 0 on and -1 below.
enum class Activation {
  kRelu,
  kTanh,
  kRelu6,
  kSelu,
  kCos,
  kSin,
  kSigmoid,
  kSilu,
  kGelu,
  kLeakyRelu,
  kSign
};
inline constexpr Named<Activation> kActivations[] = {
    {Activation::kRelu, "relu"},       {Activation::kTanh, "tanh"},
    {Activation::kRelu6, "relu6"},     {Activation::kSelu, "selu"},
    {Activation::kCos, "cos"},         {Activation::kSin, "sin"},
    {Activation::kSigmoid, "sigmoid"}, {Activation::kSilu, "silu"},
    {Activation::kGelu, "gelu"},       {Activation::kLeakyRelu, "leaky_relu"},
    {Activation::kSign, "sign"}};

struct Activated {
  double value;
  double slope;
};

// An activation at x and the factor that the gradient takes there: the derivative, 0 at the kinks
// of kRelu and kRelu6 and 1 at that of kLeakyRelu; for kSign, which has none, 1 for |x| <= 1 and 0
// beyond (straight through). Where it is 0 nothing comes through, NaN neither. All but the slopes
// of kinks pass NaN on.
Activated ActivationAt(Activation activation, double x);

}  // namespace lopt
