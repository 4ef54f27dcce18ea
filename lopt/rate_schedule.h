#pragma once

#include <string>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/base/type_table.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_device.h"

namespace lopt {

// What a config may say of a schedule: the types Constant, Linear, Cosine, Warmup, WarmupCosine and
// Piecewise, and the short names constant, linear, cosine and warmup-cosine.
const TypeTable& RateScheduleTypes();

// The key "schedule": a short name, or an object of one of the types. Numbers that do not go
// together are refused (FieldVisitor::Refuse).
void VisitSchedule(FieldVisitor& v, RateSchedule* schedule);

// The schedule for a run of `updates` updates: it no longer depends on the length of the run, and
// its rise is a whole number of steps. Throws Error if it rises for longer than that. `path`: the
// keys that lead to the object that has the schedule.
RateSchedule ResolvedSchedule(RateSchedule schedule, int64_t updates, const std::string& path);

// "<type> with schedule '<name>'", for LearnedOptimizer::needs_num_steps; empty if the schedule
// does not depend on the length of the run.
std::string NeedOfNumSteps(const std::string& type, const RateSchedule& schedule);

// RateFactor of an update.
double ScheduleFactor(const RateSchedule& schedule, const StepInfo& info);

}  // namespace lopt
