#pragma once

#include <string>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_device.h"

namespace lopt {

inline constexpr Named<RateSchedule> kRateSchedules[] = {
    {RateSchedule::kConstant, "constant"},
    {RateSchedule::kLinear, "linear"},
    {RateSchedule::kCosine, "cosine"},
    {RateSchedule::kWarmupCosine, "warmup-cosine"}};

void VisitSchedule(FieldVisitor& v, RateSchedule* schedule);

// "<type> with schedule '<name>'", for LearnedOptimizer::needs_num_steps; empty if constant.
std::string NeedOfNumSteps(const std::string& type, RateSchedule schedule);

// RateFactor of an update.
double ScheduleFactor(RateSchedule schedule, const StepInfo& info);

}  // namespace lopt
