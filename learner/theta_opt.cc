#include "lopt/learner/theta_opt.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/strict_json.h"
#include "lopt/learner/learning_rate_schedule.h"

namespace lopt {
namespace {

struct AdamOptions {
  ThetaOptOptions common;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;

  void Visit(FieldVisitor& v) {
    const Range decay = {.min = 0, .max = 1, .open_max = true};
    common.Visit(v);
    v.Field("beta1", &beta1, decay, "Decay of the first moment, the mean of the gradient.");
    v.Field("beta2", &beta2, decay, "Decay of the second moment, the mean of its square.");
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
  explicit Adam(const AdamOptions& options)
      : ThetaOpt(CheckOptions("Adam", options).common, {"m", "v"}), options_(options) {}
  explicit Adam(const AdamWOptions& options)
      : ThetaOpt(CheckOptions("AdamW", options).adam.common, {"m", "v"}),
        options_(options.adam),
        weight_decay_(options.weight_decay) {}

 private:
  void DoUpdate(double learning_rate, int64_t count, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>> rows) const override {
    const auto [beta1, beta2] = std::pair(options_.beta1, options_.beta2);
    const double scale1 = 1 / (1 - std::pow(beta1, static_cast<double>(count)));
    const double scale2 = 1 / (1 - std::pow(beta2, static_cast<double>(count)));
    for (size_t i = 0; i < theta.size(); ++i) {
      const double m = beta1 * rows[0][i] + (1 - beta1) * gradient[i];
      const double v = beta2 * rows[1][i] + (1 - beta2) * gradient[i] * gradient[i];
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
  double weight_decay_ = 0;
};

class Sgd final : public ThetaOpt {
 public:
  explicit Sgd(const ThetaOptOptions& options) : ThetaOpt(CheckOptions("SGD", options), {}) {}

 private:
  void DoUpdate(double learning_rate, int64_t, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>>) const override {
    for (size_t i = 0; i < theta.size(); ++i) {
      theta[i] = static_cast<float>(theta[i] - learning_rate * gradient[i]);
    }
  }
};

struct SgdmOptions {
  ThetaOptOptions common;
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
      : ThetaOpt(CheckOptions("SGDM", options).common, {"momentum"}), momentum_(options.momentum) {}

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

Registry<ThetaOpt> BuiltInThetaOpts() {
  Registry<ThetaOpt> registry("theta_opt", kTypesOfPlugins);
  registry.Add<AdamOptions>("Adam", "Adam.",
                            [](const AdamOptions& o) { return std::make_shared<Adam>(o); });
  registry.Add<AdamWOptions>("AdamW",
                             "Adam with weight decay that does not pass through the moments.",
                             [](const AdamWOptions& o) { return std::make_shared<Adam>(o); });
  registry.Add<ThetaOptOptions>("SGD", "Gradient descent.",
                                [](const ThetaOptOptions& o) { return std::make_shared<Sgd>(o); });
  registry.Add<SgdmOptions>("SGDM", "Gradient descent with momentum.",
                            [](const SgdmOptions& o) { return std::make_shared<Sgdm>(o); });
  return registry;
}

}  // namespace

void ThetaOptOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, AtLeast(0), "Step size.");
  v.Typed("schedule", &schedule, LearningRateScheduleRegistry().table(),
          "Factor of the learning rate as a function of the updates made.");
  v.Field("clip_by_value", &clip_by_value, Above(0),
          "Each element of the gradient is clipped to this magnitude, before "
          "clip_by_global_norm.");
  v.Field("clip_by_global_norm", &clip_by_global_norm, Above(0),
          "A gradient of a greater norm is scaled down to this one.");
}

ThetaOpt::ThetaOpt(const ThetaOptOptions& options, std::vector<std::string> rows)
    : options_(CheckOptions("theta_opt", options)),
      schedule_(LearningRateScheduleRegistry().Make(options.schedule)),
      rows_(std::move(rows)) {}

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
  return options_.learning_rate * schedule_->Scale(updates);
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
  if (options_.clip_by_value) {
    for (double& element : clipped) {
      element = std::clamp(element, -*options_.clip_by_value, *options_.clip_by_value);
    }
  }
  if (options_.clip_by_global_norm) {
    double sum = 0;
    for (double element : clipped) {
      sum += element * element;
    }
    const double norm = std::sqrt(sum);
    if (norm > *options_.clip_by_global_norm) {
      for (double& element : clipped) {
        element *= *options_.clip_by_global_norm / norm;
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

Config ResolveThetaOpt(const Config& theta_opt, int64_t updates) {
  const nlohmann::ordered_json& json = theta_opt.json();
  const auto schedule = json.find("schedule");
  if (schedule == json.end() || !schedule->is_object()) {
    return theta_opt;
  }
  nlohmann::ordered_json resolved = json;
  resolved["schedule"] =
      ResolveSchedule(Config::FromJson(*schedule, JoinKey(theta_opt.path(), "schedule")), updates)
          .json();
  return Config::FromJson(std::move(resolved), theta_opt.path());
}

}  // namespace lopt
