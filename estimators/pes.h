#pragma once

#include <Eigen/Core>
#include <optional>
#include <span>

#include "estimators/inner_problem.h"

namespace lopt {

// The PES gradient of the mean per-step meta-loss of one window, [D] (Vicol, Metz, Sohl-Dickstein
// 2021), for N antithetic pairs whose episodes may end and restart inside the window. `trace` [W,
// 2N]; `perturbations` [N, D] of this window; `felt` [N, D] is the sum of the perturbations that
// the running episodes felt in earlier windows, 0 at the start; it is brought up to date for the
// next window.
//
// Up to and including the window's first episode end a loss has felt felt + eps, after it eps
// alone. Carried on: felt + eps if no episode ended, 0 if the last step ended one, else eps.
// docs/pes.md derives this. `squares`, where given, becomes the sum over the pairs of |g_n|^2, g_n
// being the gradient that pair n gives by itself. With `sign_delta_loss_scalar` the difference of a
// pair's losses at every step becomes the sign of the pair's mean difference over the window times
// it. Throws Error if shapes disagree or std <= 0.
Eigen::VectorXf PesGradient(const UnrollTrace& trace, std::span<const float> perturbations,
                            double std, std::span<float> felt, double* squares = nullptr,
                            std::optional<double> sign_delta_loss_scalar = {});

}  // namespace lopt
