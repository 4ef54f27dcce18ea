#pragma once

#include <torch/types.h>

#include "lopt/tasks/layers/activation.h"

namespace lopt {

// An activation of every element; gradients by autograd as tasks/layers/activation_device.h says,
// kSign's going straight through where |x| <= 1.
torch::Tensor Activate(Activation activation, const torch::Tensor& x);

}  // namespace lopt
