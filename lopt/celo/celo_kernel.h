#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/lopt/network/packed_network.h"

namespace lopt {

// Gradients are clipped to [-kCeloGradientClip, kCeloGradientClip].
constexpr float kCeloGradientClip = 1000;

// The weights of CeloScheduler.
struct SchedulerLayers {
  PackedLinear inputs;        // linear_1 and linear_2, a group each
  PackedLinear gates;         // rnn/linear: the gates i, g, f and o, a group each
  std::vector<float> output;  // [units]: of h in the output
  float output_bias;
};

// Advances hidden and cell [units] by one step, and returns the output.
float FastSchedulerStep(const SchedulerLayers& layers, std::span<const float> inputs,
                        std::span<float> hidden, std::span<float> cell, Workspace& scratch);

// Writes the clipped gradient to `clipped`. NaN stays.
void FastCeloClip(std::span<const float> gradient, std::span<float> clipped);

// What CeloAdam and Sinv6 do to a tensor: with the clipped gradient g,
//   m <- .9 m + .1 g, r <- .999 r + .001 g^2,
//   p <- p - rate m_factor m / (1e-8 + sqrt(r_factor r + 1e-10)).
struct ScheduledMomentsStep {
  float rate;
  float m_factor;
  float r_factor;

  static constexpr float kMomentum = .9f;
  static constexpr float kSquares = .999f;
  static constexpr float kEpsilon = 1e-8f;
  static constexpr float kSquaresEpsilon = 1e-10f;

  // The spans have one size.
  void Apply(std::span<const float> gradient, std::span<float> p, std::span<float> m,
             std::span<float> r) const;
};

}  // namespace lopt
