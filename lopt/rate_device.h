#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "lopt/base/block_device.h"

namespace lopt {

// What multiplies the learning rate, or the step, at step t of a run of T steps: 1, 1 - t / T, or
// (1 + cos(pi t / T)) / 2; or, with a warm-up, 10 (t + 1) / T, at most 1, over the first tenth of
// the run and (1 + cos(pi (t / T - .1) / .9)) / 2 from there on.
enum class RateSchedule { kConstant, kLinear, kCosine, kWarmupCosine };

// The part of a run that is a warm-up.
inline constexpr double kWarmup = 0.1;

// `step` is below `num_steps` unless the schedule is constant.
LOPT_DEVICE inline double RateFactor(RateSchedule schedule, int64_t step, int64_t num_steps) {
  if (schedule == RateSchedule::kConstant) return 1;
  const double done = static_cast<double>(step) / static_cast<double>(num_steps);
  if (schedule == RateSchedule::kLinear) return 1 - done;
  if (schedule == RateSchedule::kCosine) return (1 + std::cos(std::numbers::pi * done)) / 2;
  if (done < kWarmup) {
    return std::fmin(1.0,
                     static_cast<double>(step + 1) / (kWarmup * static_cast<double>(num_steps)));
  }
  return (1 + std::cos(std::numbers::pi * (done - kWarmup) / (1 - kWarmup))) / 2;
}

}  // namespace lopt
