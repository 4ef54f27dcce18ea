#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "lopt/base/block_device.h"

namespace lopt {

// The shapes of RateSchedule.
enum class RateType { kConstant, kLinear, kCosine, kWarmup, kWarmupCosine, kPiecewise };

// What multiplies a learning rate, or a step, as a function of the updates t made so far. With T
// the total_steps, or the length of the run where these are 0, and w the rise, warmup_steps +
// warmup_fraction T, it is
//   constant       1;
//   linear         1 - t / T;
//   cosine         (1 + cos(pi t / T)) / 2;
//   warmup         start_scale + (1 - start_scale) t / w for t < w, 1 from there on;
//   warmup-cosine  the same rise, and from w on final_scale + (1 - final_scale) (1 + cos(pi (t - w)
//                  / (T - w))) / 2;
//   piecewise      scales[k] with k the number of boundaries not above t.
// With rises_at_once t + 1 takes the place of t in the rise. From T on it is what it is at T.
struct RateSchedule {
  static constexpr int kMaxBoundaries = 16;

  RateType type = RateType::kConstant;
  int64_t warmup_steps = 0;
  double warmup_fraction = 0;  // of T; in place of warmup_steps
  double start_scale = 0;
  bool rises_at_once = false;
  int64_t total_steps = 0;  // 0: the length of the run
  double final_scale = 0;
  int64_t num_boundaries = 0;
  int64_t boundaries[kMaxBoundaries] = {};  // ascending
  double scales[kMaxBoundaries + 1] = {1};

  // Those that a config may name by a text: 1; 1 - t / T; (1 + cos(pi t / T)) / 2; and this after a
  // rise over the first tenth of the run.
  static const RateSchedule kConstant;
  static const RateSchedule kLinear;
  static const RateSchedule kCosine;
  static const RateSchedule kWarmupCosine;

  bool operator==(const RateSchedule&) const = default;

  // Whether the factor depends on the length of the run.
  LOPT_DEVICE bool NeedsRunLength() const {
    switch (type) {
      case RateType::kConstant:
      case RateType::kWarmup:
      case RateType::kPiecewise:
        break;
      case RateType::kLinear:
      case RateType::kCosine:
      case RateType::kWarmupCosine:
        return total_steps == 0;
    }
    return false;
  }
};
inline constexpr RateSchedule RateSchedule::kConstant = {};
inline constexpr RateSchedule RateSchedule::kLinear = {.type = RateType::kLinear};
inline constexpr RateSchedule RateSchedule::kCosine = {.type = RateType::kCosine};
inline constexpr RateSchedule RateSchedule::kWarmupCosine = {
    .type = RateType::kWarmupCosine, .warmup_fraction = 0.1, .rises_at_once = true};

// The factor of a piecewise schedule.
LOPT_DEVICE inline double ScaleOfPiece(const RateSchedule& schedule, int64_t step) {
  double scale = schedule.scales[0];
  for (int i = 0; i < RateSchedule::kMaxBoundaries; ++i) {
    if (i < schedule.num_boundaries && step >= schedule.boundaries[i]) {
      scale = schedule.scales[i + 1];
    }
  }
  return scale;
}

// The factor of the update after `step` earlier ones in a run of `num_steps`, which is read where
// the schedule needs it and is then above `step`.
LOPT_DEVICE inline double RateFactor(const RateSchedule& schedule, int64_t step,
                                     int64_t num_steps) {
  const RateType type = schedule.type;
  switch (type) {  // a type without a case is a compiler's error, not a cosine
    case RateType::kConstant:
      return 1;
    case RateType::kPiecewise:
      return ScaleOfPiece(schedule, step);
    case RateType::kLinear:
    case RateType::kCosine:
    case RateType::kWarmup:
    case RateType::kWarmupCosine:
      break;
  }
  const auto t = static_cast<double>(step);
  const auto total =
      static_cast<double>(schedule.total_steps > 0 ? schedule.total_steps : num_steps);
  const double rise = static_cast<double>(schedule.warmup_steps) + schedule.warmup_fraction * total;
  if (t < rise) {
    const double risen = std::fmin(1.0, (schedule.rises_at_once ? t + 1 : t) / rise);
    return schedule.start_scale + (1 - schedule.start_scale) * risen;
  }
  if (type == RateType::kWarmup) return 1;
  const double done = std::fmin(1.0, (t - rise) / (total - rise));
  if (type == RateType::kLinear) return 1 - done;
  return schedule.final_scale +
         (1 - schedule.final_scale) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace lopt
