#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/block_device.h"

namespace lopt {

// What multiplies the learning rate, or the step, at step t of a run of T steps: 1, 1 - t / T, or
// (1 + cos(pi t / T)) / 2.
enum class RateSchedule { kConstant, kLinear, kCosine };

// `step` is below `num_steps` unless the schedule is constant.
LOPT_DEVICE inline double RateFactor(RateSchedule schedule, int64_t step, int64_t num_steps) {
  if (schedule == RateSchedule::kConstant) return 1;
  const double done = static_cast<double>(step) / static_cast<double>(num_steps);
  return schedule == RateSchedule::kLinear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace lopt
