#pragma once

#include <array>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/lopt/rate_device.h"
#include "lopt/lopt/rules/adam_step_device.h"

namespace lopt {

// The numbers that Celo2 is defined by.
struct Celo2Numbers {
  static constexpr int kMomenta = 3;
  static constexpr int kHidden = 8;
  static constexpr int kOutputs = 3;
  static constexpr int kFeatures = 30;
  static constexpr int kFewFeatures = 15;  // of a tensor with less than two dimensions
  static constexpr std::array<float, kMomenta> kDecays = {0.9f, 0.99f, 0.999f};
  static constexpr float kRmsDecay = 0.95f;
  static constexpr float kGradientClip = 1000;
  static constexpr float kSmallGradientClip = 0.1f;
  static constexpr float kNormalizerEpsilon = 1e-9f;
  static constexpr float kRsqrtEpsilon = 1e-8f;
  // Newton-Schulz.
  static constexpr float kPolynomial[3] = {3.4445f, -4.775f, 2.0315f};
  static constexpr int kIterations = 5;
  static constexpr float kNormEpsilon = 1e-8f;
  // Adam.
  static constexpr float kBeta1 = 0.9f;
  static constexpr float kBeta2 = 0.95f;
  static constexpr float kAdamEpsilon = 1e-8f;
};

// Celo2Options, but for which tensors Adam steps.
struct Celo2StepOptions {
  double learning_rate;
  double weight_decay;
  RateSchedule schedule;
  bool adamw;  // else the Adam of its meta-training
  double mult_1d;
};

// What the options of Celo2 make of one update; all implementations ask it.
struct Celo2Rates {
  LOPT_DEVICE Celo2Rates(const Celo2StepOptions& options, int64_t step, int64_t num_steps)
      : weight_decay(static_cast<float>(options.weight_decay)) {
    const double rate = options.learning_rate * RateFactor(options.schedule, step, num_steps);
    const double rate_1d = options.mult_1d * rate;
    learning_rate = static_cast<float>(rate);
    adam = {.beta1 = Celo2Numbers::kBeta1,
            .beta2 = Celo2Numbers::kBeta2,
            .epsilon = options.adamw ? Celo2Numbers::kAdamEpsilon : 0,
            .epsilon_root = options.adamw ? 0 : Celo2Numbers::kAdamEpsilon,
            .learning_rate = static_cast<float>(rate_1d),
            .kept = static_cast<float>(1 - rate_1d * options.weight_decay)};
    if (options.adamw) adam.CorrectBias(step);
  }

  float learning_rate;
  float weight_decay;
  AdamStep adam;
};

}  // namespace lopt
