#pragma once

#include "lopt/base/arrays.h"
#include "lopt/base/device.h"
#include "lopt/estimators/pairs_gradient.h"
#include "lopt/estimators/persistent_gradient.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

// What PersistentGradient gives for losses [N], computed by a device: the perturbations are drawn
// there, so keys and weights go to it, and what PairsGradient holds comes back. `accumulator` [N,
// D] is in the device's memory; null: no episode ran before the window, as in the gradient of plain
// ES. The sums are float64, their order is a function of N and D alone. Throws Error if shapes or
// memories disagree, or a block's memory is too small.
PairsGradient GradientOnDevice(const Device& device, const Perturbations& perturbations,
                               const PairsLosses& losses, Array* accumulator);

}  // namespace lopt
