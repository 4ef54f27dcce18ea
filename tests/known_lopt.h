#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// Weights of an MLPLOpt by formula: layer l with `in` rows has W[i][j] = sin(1 + .7 i + 1.3 j + 2.1
// l) / sqrt(in) and b[j] = .1 cos(.5 j + l).
inline std::vector<float> KnownTheta(const Layout& theta) {
  std::vector<float> weights(static_cast<size_t>(theta.size()));
  for (size_t n = 0; n < theta.entries().size(); ++n) {
    const LayoutEntry& entry = theta.entries()[n];
    const auto layer = static_cast<double>(n / 2);
    for (int64_t i = 0; i < entry.size; ++i) {
      double value;
      if (entry.shape.size() == 2) {
        const auto row = static_cast<double>(i / entry.shape[1]);
        const auto column = static_cast<double>(i % entry.shape[1]);
        value = std::sin(1 + .7 * row + 1.3 * column + 2.1 * layer) /
                std::sqrt(static_cast<double>(entry.shape[0]));
      } else {
        value = .1 * std::cos(.5 * static_cast<double>(i) + layer);
      }
      weights[entry.offset + i] = static_cast<float>(value);
    }
  }
  return weights;
}

// Three tensors of ranks 2, 1 and 0 and their values.
inline Layout KnownParamsLayout() { return Layout({{"P0", {2, 3}}, {"P1", {3}}, {"P2", {}}}); }
inline std::vector<float> KnownParams() {
  return {-.2f, -.1f, 0.f, .1f, .2f, .3f, .3f, -.1f, .05f, .7f};
}

// The gradient at a step: 2 p (1 + .1 step) + .01 (n + 1) for tensor n.
inline std::vector<float> KnownGradient(const Layout& params, int64_t step,
                                        std::span<const float> p) {
  std::vector<float> gradient(p.size());
  for (size_t n = 0; n < params.entries().size(); ++n) {
    const LayoutEntry& entry = params.entries()[n];
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      gradient[i] = static_cast<float>(2.0 * p[i] * (1 + .1 * static_cast<double>(step)) +
                                       .01 * static_cast<double>(n + 1));
    }
  }
  return gradient;
}

// The params after `steps` updates along the known gradient, from state zero.
inline std::vector<float> TrainKnownParams(const UpdateRule& rule, int64_t steps) {
  std::vector<float> params = KnownParams();
  std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
  rule.InitState({}, params, state);
  Workspace scratch;
  for (int64_t step = 0; step < steps; ++step) {
    rule.Update({.step = step}, KnownGradient(rule.params_layout(), step, params), params, state,
                scratch);
  }
  return params;
}

}  // namespace lopt
