#pragma once

#include <string>

#include "base/choices.h"
#include "base/fields.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

// What multiplies the learning rate, or the step, at step t of a run of T steps (StepInfo::step and
// num_steps): 1, 1 - t / T, or (1 + cos(pi t / T)) / 2.
enum class RateSchedule { kConstant, kLinear, kCosine };
inline constexpr Named<RateSchedule> kRateSchedules[] = {{RateSchedule::kConstant, "constant"},
                                                         {RateSchedule::kLinear, "linear"},
                                                         {RateSchedule::kCosine, "cosine"}};

void VisitSchedule(FieldVisitor& v, RateSchedule* schedule);

// "<type> with schedule '<name>'", for LearnedOptimizer::needs_num_steps; empty if constant.
std::string NeedOfNumSteps(const std::string& type, RateSchedule schedule);

// `info.step` is below `info.num_steps` unless the schedule is constant.
double ScheduleFactor(RateSchedule schedule, const StepInfo& info);

}  // namespace lopt
