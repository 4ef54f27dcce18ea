#pragma once

#include <Eigen/Core>
#include <functional>
#include <optional>
#include <span>

#include "estimators/inner_problem.h"
#include "estimators/theta_rows.h"

namespace lopt {

// Writes pair `pair`'s perturbation at a step of a window into `out`, [D]; called for several pairs
// at once.
using DrawPerturbation =
    std::function<void(int64_t pair, const WindowStep& at, std::span<float> out)>;

// The gradient of the mean per-step meta-loss of one window, [D], for N antithetic pairs whose
// perturbations change as `clock` says and whose episodes may end and restart inside the window:
// PES, GPES_K or NRES, by the clock (Vicol, Metz and Sohl-Dickstein 2021; Li, Harrison,
// Sohl-Dickstein, Smith and Metz 2023). `trace` [W, 2N]. `felt` [N, D] is the sum of the
// perturbations that the running episode has felt in blocks that are over, 0 at the start; it is
// brought up to date for the next window. Under the clock kWindow each window is a block.
//
// A loss is weighted by all that its episode has felt up to it: `felt` plus the perturbation in
// force. The last loss of an episode belongs to it. docs/pes.md derives this. `squares`, where
// given, becomes the sum over the pairs of |g_n|^2, g_n being the gradient that pair n gives by
// itself. With `sign_delta_loss_scalar` the difference of a pair's losses at every step becomes the
// sign of the pair's mean difference over the window times it. Throws Error if shapes disagree or
// std <= 0.
Eigen::VectorXf PersistentGradient(const UnrollTrace& trace, const PerturbationClock& clock,
                                   const DrawPerturbation& draw, double std, std::span<float> felt,
                                   double* squares = nullptr,
                                   std::optional<double> sign_delta_loss_scalar = {});

}  // namespace lopt
