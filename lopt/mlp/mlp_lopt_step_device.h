#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/lopt/rate_device.h"

namespace lopt {

// The numbers that MLPLOpt is defined by.
struct MlpLoptNumbers {
  static constexpr int kMomenta = 6;
  static constexpr int kBlock = 16;
  static constexpr int kNormalized = 2 + kMomenta;  // features that depend on the parameter
  static constexpr int kTimes = 11;
  static constexpr int kProgress = 2;
  static constexpr std::array<float, kMomenta> kDecays = {0.1f, 0.5f, 0.9f, 0.99f, 0.999f, 0.9999f};
  static constexpr std::array<float, kTimes> kTimeScales = {1,    3,    10,    30,    100,   300,
                                                            1000, 3000, 10000, 30000, 100000};
  static constexpr double kParameterFloor = 1e-3;
};

// The feature of time scale k at a time t.
LOPT_DEVICE inline float TimeFeature(float time, int k) {
  constexpr std::array<float, MlpLoptNumbers::kTimes> scales = MlpLoptNumbers::kTimeScales;
  float feature = 0;
  LOPT_UNROLL
  for (int i = 0; i < MlpLoptNumbers::kTimes; ++i) {
    if (i == k) feature = std::tanh(time / scales[i] - 1.0f);
  }
  return feature;
}

// MLPLOptOptions, but for the network's.
struct MlpLoptStepOptions {
  double exp_mult;
  double step_mult;
  bool progress_features;
  RateSchedule schedule;
  bool relative_step;
  bool relative_to_parameter;
  double normalizer_epsilon;
};

// What the options of MLPLOpt make of one update beside its network; all implementations ask it.
class MlpLoptStep {
 public:
  // `num_steps` is read where the options need it.
  LOPT_DEVICE MlpLoptStep(const MlpLoptStepOptions& options, int64_t step, int64_t num_steps)
      : time_(static_cast<float>(step)),
        exp_mult_(static_cast<float>(options.exp_mult)),
        normalizer_epsilon_(static_cast<float>(options.normalizer_epsilon)),
        step_mult_(
            static_cast<float>(options.step_mult * RateFactor(options.schedule, step, num_steps))),
        relative_step_(options.relative_step),
        relative_to_parameter_(options.relative_to_parameter) {
    if (relative_step_) {
      constexpr double decay = double{MlpLoptNumbers::kDecays.back()};
      correction_ = 1 - std::pow(decay, static_cast<double>(step + 1));
    }
    if (!options.progress_features) return;
    const auto steps = static_cast<double>(num_steps);
    progress_[0] = static_cast<float>(static_cast<double>(step) / steps);
    progress_[1] = static_cast<float>(std::log(steps) / 10);
    progress_size_ = MlpLoptNumbers::kProgress;
  }

  LOPT_DEVICE float time() const { return time_; }  // t
  LOPT_DEVICE float exp_mult() const { return exp_mult_; }
  LOPT_DEVICE float normalizer_epsilon() const { return normalizer_epsilon_; }
  // The features of progress, progress_size() of them; none without the option.
  LOPT_DEVICE const float* progress() const { return progress_; }
  LOPT_DEVICE int progress_size() const { return progress_size_; }
  // What o0 exp(o1 exp_mult) is multiplied by in a tensor of `size` elements. `sums`: of the
  // squares of each of its kNormalized features before they are normalised, in float32 or float64.
  template <class Number>
  LOPT_DEVICE float Multiplier(int64_t size, const Number* sums) const {
    double multiplier = step_mult_;
    if (relative_step_) {
      const double gradient = std::sqrt(double{sums[0]}) * correction_;
      const double slowest = std::sqrt(double{sums[MlpLoptNumbers::kNormalized - 1]});
      if (gradient == 0) return 0;
      if (gradient < slowest) multiplier *= gradient / slowest;
    }
    if (relative_to_parameter_) {
      const double rms = std::sqrt(double{sums[1]} / static_cast<double>(size));
      multiplier *= rms > MlpLoptNumbers::kParameterFloor ? rms : MlpLoptNumbers::kParameterFloor;
    }
    return static_cast<float>(multiplier);
  }

 private:
  float time_;
  float exp_mult_;
  float normalizer_epsilon_;
  float progress_[MlpLoptNumbers::kProgress] = {};
  int progress_size_ = 0;
  float step_mult_;  // the schedule's factor included
  bool relative_step_;
  bool relative_to_parameter_;
  double correction_ = 1;  // 1 - d^(t + 1) of the slowest momentum's decay d
};

}  // namespace lopt
