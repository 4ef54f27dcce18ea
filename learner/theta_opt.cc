#include "learner/theta_opt.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/error.h"

namespace lopt {
namespace {

struct ConstantOptions {
  void Visit(FieldVisitor&) {}
};

class Constant final : public LearningRateSchedule {
 public:
  double Scale(int64_t) const override { return 1; }
};

struct WarmupOptions {
  int64_t warmup_steps = 100;
  double start_scale = 0;

  void Visit(FieldVisitor& v) {
    v.Field("warmup_steps", &warmup_steps, AtLeast(0),
            "Updates over which the factor rises linearly from start_scale to 1.");
    v.Field("start_scale", &start_scale, Between(0, 1), "Factor of the first update.");
  }
};

double WarmupScale(const WarmupOptions& options, int64_t updates) {
  if (updates >= options.warmup_steps) {
    return 1;
  }
  const double done = static_cast<double>(updates) / static_cast<double>(options.warmup_steps);
  return options.start_scale + (1 - options.start_scale) * done;
}

class Warmup final : public LearningRateSchedule {
 public:
  explicit Warmup(const WarmupOptions& options) : options_(options) {}
  double Scale(int64_t updates) const override { return WarmupScale(options_, updates); }

 private:
  WarmupOptions options_;
};

struct WarmupCosineOptions {
  WarmupOptions warmup;
  int64_t total_steps = 0;
  double final_scale = 0;

  void Visit(FieldVisitor& v) {
    warmup.Visit(v);
    v.Field("total_steps", &total_steps, AtLeast(0),
            "Updates, those of the warm-up included, after which the factor is final_scale.");
    v.Field("final_scale", &final_scale, AtLeast(0), "Factor at the end and after it.");
  }
};

class WarmupCosine final : public LearningRateSchedule {
 public:
  explicit WarmupCosine(const WarmupCosineOptions& options) : options_(options) {
    Require(options.total_steps > options.warmup.warmup_steps,
            "WarmupCosine: total_steps ({}) must be greater than warmup_steps ({})",
            options.total_steps, options.warmup.warmup_steps);
  }

  double Scale(int64_t updates) const override {
    const int64_t warmup = options_.warmup.warmup_steps;
    if (updates < warmup) {
      return WarmupScale(options_.warmup, updates);
    }
    const double done = std::min(1.0, static_cast<double>(updates - warmup) /
                                          static_cast<double>(options_.total_steps - warmup));
    return options_.final_scale +
           (1 - options_.final_scale) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }

 private:
  WarmupCosineOptions options_;
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
  explicit Piecewise(PiecewiseOptions options) : options_(std::move(options)) {
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

struct CommonOptions {
  double learning_rate = 1e-3;
  Config schedule = Config::Parse(R"({"type": "Constant"})", "the default schedule");
  std::optional<double> clip_by_value;
  std::optional<double> clip_by_global_norm;

  void Visit(FieldVisitor& v) {
    v.Field("learning_rate", &learning_rate, AtLeast(0), "Step size.");
    v.Typed("schedule", &schedule, LearningRateScheduleRegistry().table(),
            "Factor of the learning rate as a function of the updates made.");
    v.Field("clip_by_value", &clip_by_value, Above(0),
            "Each element of the gradient is clipped to this magnitude, before "
            "clip_by_global_norm.");
    v.Field("clip_by_global_norm", &clip_by_global_norm, Above(0),
            "A gradient of a greater norm is scaled down to this one.");
  }

  ThetaOptCommon Make() const {
    return {.learning_rate = learning_rate,
            .schedule = LearningRateScheduleRegistry().Make(schedule),
            .clip_by_value = clip_by_value,
            .clip_by_global_norm = clip_by_global_norm};
  }
};

struct AdamOptions {
  CommonOptions common;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;

  void Visit(FieldVisitor& v) {
    const Range decay = {.min = 0, .max = 1, .open_max = true};
    common.Visit(v);
    v.Field("b1", &b1, decay, "Decay of the mean of the gradient.");
    v.Field("b2", &b2, decay, "Decay of the mean of its square.");
    v.Field("epsilon", &epsilon, AtLeast(0), "Added to the root in the denominator.");
    v.Field("epsilon_root", &epsilon_root, AtLeast(0),
            "Added under the root in the denominator. The JAX package has 1e-8 here, which damps "
            "gradients far below 1e-4.");
  }
};

struct AdamWOptions {
  AdamOptions adam;
  double weight_decay = 1e-4;

  void Visit(FieldVisitor& v) {
    adam.Visit(v);
    v.Field("weight_decay", &weight_decay, AtLeast(0),
            "learning_rate times this times theta is subtracted as well.");
  }
};

// Kingma and Ba 2015; with weight_decay > 0 Loshchilov and Hutter 2019.
class Adam final : public ThetaOpt {
 public:
  Adam(const AdamOptions& options, double weight_decay)
      : ThetaOpt(options.common.Make(), {"m", "v"}),
        options_(options),
        weight_decay_(weight_decay) {}

 private:
  void DoUpdate(double learning_rate, int64_t count, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>> rows) const override {
    const auto [b1, b2] = std::pair(options_.b1, options_.b2);
    const double scale1 = 1 / (1 - std::pow(b1, static_cast<double>(count)));
    const double scale2 = 1 / (1 - std::pow(b2, static_cast<double>(count)));
    for (size_t i = 0; i < theta.size(); ++i) {
      const double m = b1 * rows[0][i] + (1 - b1) * gradient[i];
      const double v = b2 * rows[1][i] + (1 - b2) * gradient[i] * gradient[i];
      const double denominator = std::sqrt(v * scale2 + options_.epsilon_root) + options_.epsilon;
      // 0 / 0 is a gradient that has always been zero, with both epsilons zero: no step.
      const double direction = m == 0 ? 0 : m * scale1 / denominator;
      rows[0][i] = static_cast<float>(m);
      rows[1][i] = static_cast<float>(v);
      theta[i] =
          static_cast<float>(theta[i] - learning_rate * (direction + weight_decay_ * theta[i]));
    }
  }

  AdamOptions options_;
  double weight_decay_;
};

class Sgd final : public ThetaOpt {
 public:
  explicit Sgd(const CommonOptions& options) : ThetaOpt(options.Make(), {}) {}

 private:
  void DoUpdate(double learning_rate, int64_t, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>>) const override {
    for (size_t i = 0; i < theta.size(); ++i) {
      theta[i] = static_cast<float>(theta[i] - learning_rate * gradient[i]);
    }
  }
};

struct SgdmOptions {
  CommonOptions common;
  double momentum = 0.9;

  void Visit(FieldVisitor& v) {
    common.Visit(v);
    v.Field("momentum", &momentum, {.min = 0, .max = 1, .open_max = true},
            "Decay of the sum of gradients that is the direction.");
  }
};

class Sgdm final : public ThetaOpt {
 public:
  explicit Sgdm(const SgdmOptions& options)
      : ThetaOpt(options.common.Make(), {"momentum"}), momentum_(options.momentum) {}

 private:
  void DoUpdate(double learning_rate, int64_t, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>> rows) const override {
    for (size_t i = 0; i < theta.size(); ++i) {
      const double momentum = momentum_ * rows[0][i] + gradient[i];
      rows[0][i] = static_cast<float>(momentum);
      theta[i] = static_cast<float>(theta[i] - learning_rate * momentum);
    }
  }

  double momentum_;
};

Registry<LearningRateSchedule> BuiltInSchedules() {
  Registry<LearningRateSchedule> registry("learning rate schedule");
  registry.Add<ConstantOptions>(
      "Constant", "Always 1.", [](const ConstantOptions&) { return std::make_shared<Constant>(); });
  registry.Add<WarmupOptions>("Warmup", "Rises linearly to 1 and stays there.",
                              [](const WarmupOptions& o) { return std::make_shared<Warmup>(o); });
  registry.Add<WarmupCosineOptions>(
      "WarmupCosine", "Rises linearly to 1, then falls along half a cosine.",
      [](const WarmupCosineOptions& o) { return std::make_shared<WarmupCosine>(o); });
  registry.Add<PiecewiseOptions>(
      "Piecewise", "Constant between given updates.",
      [](const PiecewiseOptions& o) { return std::make_shared<Piecewise>(o); });
  return registry;
}

Registry<ThetaOpt> BuiltInThetaOpts() {
  Registry<ThetaOpt> registry("theta_opt");
  registry.Add<AdamOptions>("Adam", "Adam.",
                            [](const AdamOptions& o) { return std::make_shared<Adam>(o, 0); });
  registry.Add<AdamWOptions>(
      "AdamW", "Adam with weight decay that does not pass through the moments.",
      [](const AdamWOptions& o) { return std::make_shared<Adam>(o.adam, o.weight_decay); });
  registry.Add<CommonOptions>("SGD", "Gradient descent.",
                              [](const CommonOptions& o) { return std::make_shared<Sgd>(o); });
  registry.Add<SgdmOptions>("SGDM", "Gradient descent with momentum.",
                            [](const SgdmOptions& o) { return std::make_shared<Sgdm>(o); });
  return registry;
}

}  // namespace

ThetaOpt::ThetaOpt(ThetaOptCommon common, std::vector<std::string> rows)
    : common_(std::move(common)), rows_(std::move(rows)) {}

NamedArrays ThetaOpt::InitState(int64_t size) const {
  NamedArrays state;
  state.Set("count", Array(DType::kInt64, {}));
  for (const std::string& row : rows_) {
    state.Set(row, Array(DType::kFloat32, {size}));
  }
  return state;
}

double ThetaOpt::LearningRate(const NamedArrays& state) const {
  const int64_t updates = state.At("count", DType::kInt64, {}).As<int64_t>()[0];
  return common_.learning_rate * (common_.schedule ? common_.schedule->Scale(updates) : 1);
}

void ThetaOpt::Update(std::span<const float> gradient, std::span<float> theta,
                      NamedArrays* state) const {
  const auto size = static_cast<int64_t>(theta.size());
  Require(gradient.size() == theta.size(), "theta_opt: the gradient has {} numbers, theta has {}",
          gradient.size(), theta.size());
  const double learning_rate = LearningRate(*state);
  std::vector<std::span<float>> rows;
  for (const std::string& row : rows_) {
    rows.push_back(state->At(row, DType::kFloat32, {size}).As<float>());
  }

  std::vector<double> clipped(gradient.begin(), gradient.end());
  if (common_.clip_by_value) {
    for (double& element : clipped) {
      element = std::clamp(element, -*common_.clip_by_value, *common_.clip_by_value);
    }
  }
  if (common_.clip_by_global_norm) {
    double sum = 0;
    for (double element : clipped) {
      sum += element * element;
    }
    const double norm = std::sqrt(sum);
    if (norm > *common_.clip_by_global_norm) {
      for (double& element : clipped) {
        element *= *common_.clip_by_global_norm / norm;
      }
    }
  }

  int64_t& count = state->At("count").As<int64_t>()[0];
  ++count;
  DoUpdate(learning_rate, count, clipped, theta, rows);
}

Registry<ThetaOpt>& ThetaOptRegistry() {
  static Registry<ThetaOpt> registry = BuiltInThetaOpts();
  return registry;
}

Registry<LearningRateSchedule>& LearningRateScheduleRegistry() {
  static Registry<LearningRateSchedule> registry = BuiltInSchedules();
  return registry;
}

}  // namespace lopt
