#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

// What hand-designed optimizers are made of.

// A layout of numbers, each of shape [1].
Layout ScalarsLayout(const std::vector<std::string>& names);

// "<prefix>/<tensor>" for the tensors of the params, all of the first prefix, then of the next.
Layout SlotsLayout(const Layout& params, const std::vector<std::string>& prefixes);

// Names and shapes of tensors, for a Layout.
using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// Appends the tensors of a layout, their names behind the prefix.
void AppendPrefixed(const std::string& prefix, const Layout& layout, NamedShapes* tensors);

// The natural logarithm, as theta has it.
inline float Log(double value) { return static_cast<float>(std::log(value)); }

// The largest decay of a running mean. With the next float32, 1, nothing would enter it.
inline constexpr float kLargestDecay = 0x1.fffffep-1f;

// A learning rate with its schedule.
class ScheduledRate {
 public:
  ScheduledRate(float rate, RateSchedule schedule) : rate_(rate), schedule_(schedule) {}

  // Of the update that `info` is of.
  float At(const StepInfo& info) const {
    return static_cast<float>(double{rate_} * ScheduleFactor(schedule_, info));
  }

 private:
  float rate_;
  RateSchedule schedule_;
};

}  // namespace lopt
