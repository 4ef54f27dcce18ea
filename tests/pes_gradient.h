#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "lopt/estimators/persistent_gradient.h"

namespace lopt {

// PersistentGradient of one window with given perturbations [N, D] that last for the window.
inline Eigen::VectorXf PesGradient(const UnrollTrace& trace, std::span<const float> perturbations,
                                   double std, std::span<float> accumulator,
                                   double* squares = nullptr,
                                   std::optional<double> sign_delta_loss_scalar = {}) {
  const auto draw = [&](int64_t pair, const WindowStep&, std::span<float> out) {
    std::ranges::copy(perturbations.subspan(pair * out.size(), out.size()), out.begin());
  };
  return PersistentGradient(
      LossGroupsOf(trace, {PerturbationClock::kWindow}, sign_delta_loss_scalar), draw, std,
      accumulator, squares);
}

}  // namespace lopt
