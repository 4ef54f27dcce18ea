#include "lopt/lopt/rate_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/problems.h"
#include "lopt/base/strict_json.h"

namespace lopt {
namespace {

constexpr Named<RateType> kRateTypes[] = {{RateType::kConstant, "Constant"},
                                          {RateType::kLinear, "Linear"},
                                          {RateType::kCosine, "Cosine"},
                                          {RateType::kWarmup, "Warmup"},
                                          {RateType::kWarmupCosine, "WarmupCosine"},
                                          {RateType::kPiecewise, "Piecewise"}};

struct ShortSchedule {
  const char* name;
  RateSchedule schedule;
};
constexpr ShortSchedule kShortSchedules[] = {{"constant", RateSchedule::kConstant},
                                             {"linear", RateSchedule::kLinear},
                                             {"cosine", RateSchedule::kCosine},
                                             {"warmup-cosine", RateSchedule::kWarmupCosine}};

constexpr int64_t kDefaultWarmup = 100;

// What the config of any type says; a type shows its own.
struct ScheduleFields {
  RateType type = RateType::kConstant;
  int64_t steps_of_warmup = kDefaultWarmup;  // Warmup's
  std::optional<int64_t> warmup_steps = {};
  std::optional<double> warmup_fraction = {};
  double start_scale = 0;
  bool rises_at_once = false;
  std::optional<int64_t> total_steps = {};
  double final_scale = 0;
  std::vector<int64_t> boundaries = {};
  std::vector<double> scales{1};

  void Visit(FieldVisitor& v) {
    if (type == RateType::kWarmup) {
      v.Field("warmup_steps", &steps_of_warmup, AtLeast(0),
              "Updates over which the factor rises linearly from start_scale to 1.");
      VisitStartScale(v);
    }
    if (type == RateType::kWarmupCosine) VisitWarmupCosine(v);
    if (type == RateType::kLinear || type == RateType::kCosine) {
      v.Field("total_steps", &total_steps, AtLeast(1),
              "Updates after which the factor is 0; null: the length of the run, for theta_opt the "
              "run's meta_steps when it begins.");
    }
    if (type == RateType::kPiecewise) {
      v.Field("boundaries", &boundaries, AtLeast(1),
              "Updates, ascending, from which on the next factor holds; up to 16.");
      v.Field("scales", &scales, AtLeast(0), "Factors, one more than boundaries.");
    }
  }

 private:
  void VisitStartScale(FieldVisitor& v) {
    v.Field("start_scale", &start_scale, Between(0, 1), "Factor of the first update.");
  }
  void VisitWarmupCosine(FieldVisitor& v) {
    v.Field("warmup_steps", &warmup_steps, AtLeast(0),
            "Updates over which the factor rises linearly from start_scale to 1; null: 100, or "
            "what warmup_fraction gives. In a run of no more updates it only rises; for theta_opt "
            "that is an error.");
    v.Field("warmup_fraction", &warmup_fraction, {.min = 0, .max = 1, .open_max = true},
            "In place of warmup_steps: these as a fraction of total_steps, rounded where a "
            "meta-training run fills in total_steps.");
    VisitStartScale(v);
    v.Field("total_steps", &total_steps, AtLeast(1),
            "Updates, those of the warm-up included, after which the factor is final_scale; null: "
            "the length of the run, for theta_opt the run's meta_steps when it begins.");
    v.Field("final_scale", &final_scale, AtLeast(0), "Factor at the end and after it.");
    v.Field("rises_at_once", &rises_at_once,
            "Whether the first update is already one step up the rise.");
  }
};

ScheduleFields FieldsOf(const RateSchedule& schedule) {
  ScheduleFields fields{.type = schedule.type,
                        .steps_of_warmup = schedule.warmup_steps,
                        .start_scale = schedule.start_scale,
                        .rises_at_once = schedule.rises_at_once,
                        .final_scale = schedule.final_scale};
  if (schedule.warmup_fraction > 0) {
    fields.warmup_fraction = schedule.warmup_fraction;
  } else {
    fields.warmup_steps = schedule.warmup_steps;
  }
  if (schedule.total_steps > 0) fields.total_steps = schedule.total_steps;
  fields.boundaries.assign(schedule.boundaries, schedule.boundaries + schedule.num_boundaries);
  fields.scales.assign(schedule.scales, schedule.scales + schedule.num_boundaries + 1);
  return fields;
}

// What is wrong with a key of a schedule beside its others.
struct Clash {
  const char* key;
  std::string why;
};

std::optional<Clash> ClashOfRise(int64_t total_steps, int64_t warmup_steps) {
  if (total_steps > warmup_steps) return std::nullopt;
  return Clash{"schedule.total_steps", fmt::format("must be above the warm-up's {} updates, got {}",
                                                   warmup_steps, total_steps)};
}

std::optional<Clash> ClashOfWarmupCosine(const ScheduleFields& fields) {
  if (fields.warmup_steps && fields.warmup_fraction) {
    return Clash{"schedule.warmup_fraction",
                 fmt::format("must not be given beside warmup_steps, {}, got {}",
                             *fields.warmup_steps, *fields.warmup_fraction)};
  }
  if (!fields.total_steps || fields.warmup_fraction) return std::nullopt;
  return ClashOfRise(*fields.total_steps, fields.warmup_steps.value_or(kDefaultWarmup));
}

std::optional<Clash> ClashOfPieces(const ScheduleFields& fields) {
  const std::vector<int64_t>& boundaries = fields.boundaries;
  if (boundaries.size() > RateSchedule::kMaxBoundaries) {
    return Clash{"schedule.boundaries",
                 fmt::format("must have up to {} numbers, got {}", RateSchedule::kMaxBoundaries,
                             boundaries.size())};
  }
  if (fields.scales.size() != boundaries.size() + 1) {
    return Clash{"schedule.scales",
                 fmt::format("must have one number more than boundaries, which has {}, got {}",
                             boundaries.size(), fields.scales.size())};
  }
  for (size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i - 1] < boundaries[i]) continue;
    return Clash{"schedule.boundaries", fmt::format("must be ascending, got {} before {}",
                                                    boundaries[i - 1], boundaries[i])};
  }
  return std::nullopt;
}

std::optional<Clash> ClashOf(const ScheduleFields& fields) {
  if (fields.type == RateType::kWarmupCosine) return ClashOfWarmupCosine(fields);
  if (fields.type == RateType::kPiecewise) return ClashOfPieces(fields);
  return std::nullopt;
}

// Of fields that do not clash.
RateSchedule ScheduleOf(const ScheduleFields& fields) {
  RateSchedule schedule{.type = fields.type,
                        .start_scale = fields.start_scale,
                        .rises_at_once = fields.rises_at_once,
                        .total_steps = fields.total_steps.value_or(0),
                        .final_scale = fields.final_scale};
  if (fields.type == RateType::kWarmup) schedule.warmup_steps = fields.steps_of_warmup;
  if (fields.type == RateType::kWarmupCosine) {
    schedule.warmup_fraction = fields.warmup_fraction.value_or(0);
    schedule.warmup_steps =
        fields.warmup_fraction.has_value() ? 0 : fields.warmup_steps.value_or(kDefaultWarmup);
  }
  if (fields.type == RateType::kPiecewise) {
    schedule.num_boundaries = std::ssize(fields.boundaries);
    std::ranges::copy(fields.boundaries, schedule.boundaries);
    std::ranges::copy(fields.scales, schedule.scales);
  }
  return schedule;
}

// Stays one of no type where it is checked.
constexpr auto kNoRateType = static_cast<RateType>(-1);

Config ConfigOf(const RateSchedule& schedule) {
  const auto number = static_cast<int64_t>(schedule.type);
  const char* type = FindName(NumberedChoices(kRateTypes).entries, number);
  if (type == nullptr) {
    return Config::Parse(fmt::format(R"({{"type": "number {}"}})", number), "schedule");
  }
  return WriteOptions(type, FieldsOf(schedule));
}

TypeTable MakeScheduleTypes() {
  TypeTable types("schedule");
  const auto add = [&](RateType type, const char* summary) {
    types.Add({NameOf("schedule", type, kRateTypes), summary,
               [type](FieldVisitor& v) { ScheduleFields{.type = type}.Visit(v); }});
  };
  add(RateType::kConstant, "Always 1; in short `\"constant\"`.");
  add(RateType::kLinear, "Falls linearly to 0; in short `\"linear\"`.");
  add(RateType::kCosine, "Falls along half a cosine to 0; in short `\"cosine\"`.");
  add(RateType::kWarmup, "Rises linearly to 1 and stays there.");
  add(RateType::kWarmupCosine,
      "Rises linearly to 1, then falls along half a cosine. `\"warmup-cosine\"` is short for "
      "`{\"type\": \"WarmupCosine\", \"warmup_fraction\": 0.1, \"rises_at_once\": true}`.");
  add(RateType::kPiecewise, "Constant between given updates.");
  for (const ShortSchedule& entry : kShortSchedules) {
    types.AddShortName(entry.name, ConfigOf(entry.schedule));
  }
  return types;
}

// What messages call it.
std::string NameOfSchedule(const RateSchedule& schedule) {
  for (const ShortSchedule& entry : kShortSchedules) {
    if (entry.schedule == schedule) return entry.name;
  }
  return NameOf("schedule", schedule.type, kRateTypes);
}

}  // namespace

const TypeTable& RateScheduleTypes() {
  static const TypeTable types = MakeScheduleTypes();
  return types;
}

void VisitSchedule(FieldVisitor& v, RateSchedule* schedule) {
  Config config = ConfigOf(*schedule);
  v.Typed("schedule", &config, RateScheduleTypes(),
          "What multiplies the learning rate, or the step, as a function of the updates made.");
  ScheduleFields fields;
  Problems problems("schedule");  // the visitor reports them
  const TypeEntry* entry = RateScheduleTypes().Find(config, &problems);
  if (entry == nullptr) {
    schedule->type = kNoRateType;
    return;
  }
  fields.type = ValueOf("schedule", entry->type, kRateTypes);
  ReadFields(
      config, [&](FieldVisitor& fields_of) { fields.Visit(fields_of); }, &problems);
  if (!problems.empty()) return;
  if (const std::optional<Clash> clash = ClashOf(fields)) {
    v.Refuse(clash->key, clash->why);
  } else {
    *schedule = ScheduleOf(fields);
  }
}

RateSchedule ResolvedSchedule(RateSchedule schedule, int64_t updates, const std::string& path) {
  if (!schedule.NeedsRunLength() && schedule.warmup_fraction == 0) return schedule;
  const bool given = schedule.total_steps > 0;
  if (!given) schedule.total_steps = std::max<int64_t>(1, updates);
  schedule.warmup_steps +=
      std::llround(schedule.warmup_fraction * static_cast<double>(schedule.total_steps));
  schedule.warmup_fraction = 0;
  if (schedule.type == RateType::kWarmupCosine) {
    const std::optional<Clash> clash = ClashOfRise(schedule.total_steps, schedule.warmup_steps);
    Require(!clash, "config: '{}' {}{}", clash ? JoinKey(path, clash->key) : "",
            clash ? clash->why : "", given ? "" : ", the length of the run");
  }
  return schedule;
}

std::string NeedOfNumSteps(const std::string& type, const RateSchedule& schedule) {
  if (!schedule.NeedsRunLength()) return "";
  return type + " with schedule '" + NameOfSchedule(schedule) + "'";
}

double ScheduleFactor(const RateSchedule& schedule, const StepInfo& info) {
  return RateFactor(schedule, info.step, info.num_steps);
}

}  // namespace lopt
