#include "lopt/learner/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {
namespace {

struct ConstantOptions {
  void Visit(FieldVisitor&) {}
};

class Constant final : public LearningRateSchedule {
 public:
  double Scale(int64_t) const override { return 1; }
};

constexpr int64_t kDefaultWarmup = 100;

// Rises linearly from start_scale to 1.
double Rise(int64_t updates, int64_t warmup_steps, double start_scale) {
  const double done = static_cast<double>(updates) / static_cast<double>(warmup_steps);
  return start_scale + (1 - start_scale) * done;
}

struct WarmupOptions {
  int64_t warmup_steps = kDefaultWarmup;
  double start_scale = 0;

  void Visit(FieldVisitor& v) {
    v.Field("warmup_steps", &warmup_steps, AtLeast(0),
            "Updates over which the factor rises linearly from start_scale to 1.");
    v.Field("start_scale", &start_scale, Between(0, 1), "Factor of the first update.");
  }
};

class Warmup final : public LearningRateSchedule {
 public:
  explicit Warmup(const WarmupOptions& options) : options_(CheckOptions("Warmup", options)) {}

  double Scale(int64_t updates) const override {
    return updates < options_.warmup_steps
               ? Rise(updates, options_.warmup_steps, options_.start_scale)
               : 1;
  }

 private:
  WarmupOptions options_;
};

struct WarmupCosineOptions {
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_fraction;
  double start_scale = 0;
  std::optional<int64_t> total_steps;
  double final_scale = 0;

  void Visit(FieldVisitor& v) {
    v.Field("warmup_steps", &warmup_steps, AtLeast(0),
            "Updates over which the factor rises linearly from start_scale to 1; null: 100, or "
            "what warmup_fraction gives.");
    v.Field("warmup_fraction", &warmup_fraction, {.min = 0, .max = 1, .open_max = true},
            "In place of warmup_steps: these as a fraction of total_steps, rounded.");
    v.Field("start_scale", &start_scale, Between(0, 1), "Factor of the first update.");
    v.Field("total_steps", &total_steps, AtLeast(1),
            "Updates, those of the warm-up included, after which the factor is final_scale; null: "
            "the run's meta_steps when it begins.");
    v.Field("final_scale", &final_scale, AtLeast(0), "Factor at the end and after it.");
  }

  // Leaves nothing open, for a run of `updates` updates.
  void Resolve(int64_t updates) {
    Require(!warmup_steps || !warmup_fraction,
            "WarmupCosine: give warmup_steps ({}) or warmup_fraction ({}), not both",
            warmup_steps.value_or(0), warmup_fraction.value_or(0));
    if (!total_steps) {
      total_steps = std::max<int64_t>(1, updates);
    }
    if (warmup_fraction) {
      warmup_steps = std::llround(*warmup_fraction * static_cast<double>(*total_steps));
      warmup_fraction.reset();
    } else if (!warmup_steps) {
      warmup_steps = kDefaultWarmup;
    }
    Require(*total_steps > *warmup_steps,
            "WarmupCosine: total_steps ({}) must be greater than warmup_steps ({})", *total_steps,
            *warmup_steps);
  }
};

constexpr char kWarmupCosine[] = "WarmupCosine";

class WarmupCosine final : public LearningRateSchedule {
 public:
  explicit WarmupCosine(WarmupCosineOptions options) {
    CheckOptions(kWarmupCosine, options);
    Require(options.total_steps.has_value(),
            "WarmupCosine: total_steps is missing; a meta-training run would fill in its own");
    options.Resolve(0);
    warmup_ = *options.warmup_steps;
    total_ = *options.total_steps;
    start_scale_ = options.start_scale;
    final_scale_ = options.final_scale;
  }

  double Scale(int64_t updates) const override {
    if (updates < warmup_) {
      return Rise(updates, warmup_, start_scale_);
    }
    const double done = std::min(
        1.0, static_cast<double>(updates - warmup_) / static_cast<double>(total_ - warmup_));
    return final_scale_ + (1 - final_scale_) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }

 private:
  int64_t warmup_ = 0;
  int64_t total_ = 1;
  double start_scale_ = 0;
  double final_scale_ = 0;
};

struct PiecewiseOptions {
  std::vector<int64_t> boundaries;
  std::vector<double> scales{1};

  void Visit(FieldVisitor& v) {
    v.Field("boundaries", &boundaries, AtLeast(1),
            "Updates, ascending, from which on the next factor holds.");
    v.Field("scales", &scales, AtLeast(0), "Factors, one more than boundaries.");
  }
};

class Piecewise final : public LearningRateSchedule {
 public:
  explicit Piecewise(const PiecewiseOptions& options)
      : options_(CheckOptions("Piecewise", options)) {
    Require(options_.scales.size() == options_.boundaries.size() + 1,
            "Piecewise: scales must have one number more than boundaries, got {} and {}",
            options_.scales.size(), options_.boundaries.size());
    for (size_t i = 1; i < options_.boundaries.size(); ++i) {
      Require(options_.boundaries[i - 1] < options_.boundaries[i],
              "Piecewise: boundaries must be ascending, got {} before {}",
              options_.boundaries[i - 1], options_.boundaries[i]);
    }
  }

  double Scale(int64_t updates) const override {
    const auto& boundaries = options_.boundaries;
    const auto piece = std::upper_bound(boundaries.begin(), boundaries.end(), updates);
    return options_.scales[static_cast<size_t>(piece - boundaries.begin())];
  }

 private:
  PiecewiseOptions options_;
};

Registry<LearningRateSchedule> BuiltInSchedules() {
  Registry<LearningRateSchedule> registry("learning rate schedule", kTypesOfPlugins);
  registry.Add<ConstantOptions>(
      "Constant", "Always 1.", [](const ConstantOptions&) { return std::make_shared<Constant>(); });
  registry.Add<WarmupOptions>("Warmup", "Rises linearly to 1 and stays there.",
                              [](const WarmupOptions& o) { return std::make_shared<Warmup>(o); });
  registry.Add<WarmupCosineOptions>(
      kWarmupCosine, "Rises linearly to 1, then falls along half a cosine.",
      [](const WarmupCosineOptions& o) { return std::make_shared<WarmupCosine>(o); });
  registry.Add<PiecewiseOptions>(
      "Piecewise", "Constant between given updates.",
      [](const PiecewiseOptions& o) { return std::make_shared<Piecewise>(o); });
  return registry;
}

}  // namespace

Registry<LearningRateSchedule>& LearningRateScheduleRegistry() {
  static Registry<LearningRateSchedule> registry = BuiltInSchedules();
  return registry;
}

Config ResolveSchedule(const Config& schedule, int64_t updates) {
  if (schedule.Type() != kWarmupCosine) {
    return schedule;
  }
  auto options = ReadOptions<WarmupCosineOptions>(schedule);
  options.Resolve(updates);
  return Config::FromJson(WriteOptions(kWarmupCosine, options).json(), schedule.path());
}

}  // namespace lopt
