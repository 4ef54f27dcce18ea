#pragma once

#include <cstdint>

#include "lopt/base/registry.h"

namespace lopt {

// How a learning rate changes over the updates, as a multiple of `learning_rate`. Immutable.
class LearningRateSchedule {
 public:
  virtual ~LearningRateSchedule() = default;
  // The factor of the update after `updates` earlier ones.
  virtual double Scale(int64_t updates) const = 0;
};

// Constant, Warmup, WarmupCosine, Piecewise.
Registry<LearningRateSchedule>& LearningRateScheduleRegistry();

// The config of a schedule with the numbers of updates that it leaves open or gives as fractions,
// for a run of `updates` updates: WarmupCosine's total_steps and warmup_steps. Of any other type,
// or resolved already, the config as it is. Throws Error as ReadFields does.
Config ResolveSchedule(const Config& schedule, int64_t updates);

}  // namespace lopt
