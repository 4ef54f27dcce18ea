#pragma once

#include <Eigen/Core>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lopt/estimators/gradient_device.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

// Writes pair `pair`'s perturbation at a step of a window into `out`, [D]; called for several pairs
// at once.
using DrawPerturbation =
    std::function<void(int64_t pair, const WindowStep& at, std::span<float> out)>;

// Losses in a row of one pair that share one sum: the accumulator, which adds up the perturbations
// of their episode's blocks that are over, and the perturbation in force.
struct LossGroup {
  WindowStep at = {};           // where the perturbation is named
  double weight = 0;            // of that sum: the sum of the pair's differences, divided by W
  AccumulatorAfter after = {};  // what then becomes of `accumulator`
};
// Those of each pair in one window, in order.
using PairsLosses = std::vector<std::vector<LossGroup>>;

// The losses of a trace [W, 2N] of N antithetic pairs whose perturbations change as `clock` says
// and whose episodes may end and restart inside the window; under the clock kWindow each window is
// a block. The last loss of an episode belongs to it. With `sign_delta_loss_scalar` the difference
// of a pair's losses at every step becomes the sign of the pair's mean difference over the window
// times it. Throws Error if the trace is not one of pairs.
PairsLosses LossGroupsOf(const UnrollTrace& trace, const PerturbationClock& clock,
                         std::optional<double> sign_delta_loss_scalar = {});

// The gradient of the mean per-step meta-loss of one window, [D]: PES, GPES_K or NRES, by the clock
// (Vicol, Metz and Sohl-Dickstein 2021; Li, Harrison, Sohl-Dickstein, Smith and Metz 2023):
// sum_n sum_losses weight (accumulator + perturbation) / (2 std^2 N). docs/pes.md derives this.
// `accumulator` [N, D], 0 at the start, is brought up to date for the next window. `squares`, where
// given, becomes the sum over the pairs of |g_n|^2, g_n being the gradient that pair n gives by
// itself. Throws Error if shapes disagree or std <= 0.
Eigen::VectorXf PersistentGradient(const PairsLosses& losses, const DrawPerturbation& draw,
                                   double std, std::span<float> accumulator,
                                   double* squares = nullptr);

}  // namespace lopt
