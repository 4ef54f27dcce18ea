#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// Sums over one tensor in an update by LearnedScheduler, of products of g, its gradient; p, the
// params before the optimizer's step; s = p - u in float32, where u are the params after it; and l,
// the last step.
struct SchedulerSums {
  double gg;
  double gs;
  double gl;
  double ss;
  double ll;
  double pp;
};

// Formed in float64 and, as by SumInLanes, in an order that does not depend on the instruction set.
// The four spans have one size.
SchedulerSums SumsOfScheduler(std::span<const float> gradient, std::span<const float> before,
                              std::span<const float> after, std::span<const float> last);

// last <- scale s and after <- p - last - decay p, all in float32.
void StepOfScheduler(float scale, float decay, std::span<const float> before,
                     std::span<float> after, std::span<float> last);

}  // namespace lopt
