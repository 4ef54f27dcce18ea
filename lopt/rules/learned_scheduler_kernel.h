#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// Sums over one tensor in an update by LearnedScheduler: g is its gradient, p what it was before
// the optimizer's step, s = p - u of what it is after it, u, formed in float32, and l the last
// step.
struct SchedulerSums {
  double gg;
  double gs;
  double gl;
  double ss;
  double ll;
  double pp;
};

// In float64 and, like SumInLanes, in an order that does not depend on the instruction set. The
// four spans have one size.
SchedulerSums SumsOfScheduler(std::span<const float> gradient, std::span<const float> before,
                              std::span<const float> after, std::span<const float> last);

// last <- scale s and after <- p - last - decay p, all in float32.
void StepOfScheduler(float scale, float decay, std::span<const float> before,
                     std::span<float> after, std::span<float> last);

}  // namespace lopt
