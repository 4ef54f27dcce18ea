#include "lopt/lopt/rules/float64_rules.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

// Rows of P numbers.
Layout RowsLayout(const Layout& params, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Shape>> rows;
  for (const std::string& name : names) rows.emplace_back(name, Shape{params.size()});
  return Layout(std::move(rows));
}

// A rule whose Step takes gradients of either precision.
template <class Rule>
class Float64Rule : public UpdateRule {
 public:
  Float64Rule(const Layout& params, const std::vector<std::string>& rows, double learning_rate,
              const RateSchedule& schedule)
      : UpdateRule(params, RowsLayout(params, rows)),
        learning_rate_(learning_rate),
        schedule_(schedule) {}

  double LearningRate(const StepInfo& info) const override {
    return learning_rate_ * ScheduleFactor(schedule_, info);
  }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    static_cast<const Rule*>(this)->Step(info, gradient, params, state);
  }
  void DoUpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace&) const override {
    static_cast<const Rule*>(this)->Step(info, gradient, params, state);
  }

  double learning_rate_;
  RateSchedule schedule_;
};

class Float64AdamRule : public Float64Rule<Float64AdamRule> {
 public:
  Float64AdamRule(const AdamOptions& options, double weight_decay, const Layout& params,
                  double learning_rate)
      : Float64Rule(params, {"m", "v"}, learning_rate, options.schedule),
        options_(options),
        weight_decay_(weight_decay) {}

  template <std::floating_point Number>
  void Step(const StepInfo& info, std::span<const Number> gradient, std::span<float> params,
            std::span<float> state) const {
    const double learning_rate = LearningRate(info);
    const auto count = static_cast<double>(info.step + 1);
    const auto [beta1, beta2] = std::pair(options_.beta1, options_.beta2);
    const double scale1 = 1 / (1 - std::pow(beta1, count));
    const double scale2 = 1 / (1 - std::pow(beta2, count));
    const std::span<float> m = state.first(params.size());
    const std::span<float> v = state.subspan(params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      const double g = WithinLimit(double{gradient[i]}, double{kLargestAdamGradient});
      const double mean = beta1 * m[i] + (1 - beta1) * g;
      const double square = beta2 * v[i] + (1 - beta2) * g * g;
      const double denominator =
          std::sqrt(square * scale2 + options_.epsilon_root) + options_.epsilon;
      // 0 / 0 is a gradient that has always been zero, with both epsilons zero: no step.
      const double direction = mean == 0 ? 0 : mean * scale1 / denominator;
      m[i] = static_cast<float>(mean);
      v[i] = static_cast<float>(square);
      params[i] =
          static_cast<float>(params[i] - learning_rate * (direction + weight_decay_ * params[i]));
    }
  }

 private:
  AdamOptions options_;
  double weight_decay_;
};

class Float64SGDRule : public Float64Rule<Float64SGDRule> {
 public:
  Float64SGDRule(const SGDOptions& options, const Layout& params, double learning_rate)
      : Float64Rule(params, {}, learning_rate, options.schedule) {}

  template <std::floating_point Number>
  void Step(const StepInfo& info, std::span<const Number> gradient, std::span<float> params,
            std::span<float>) const {
    const double learning_rate = LearningRate(info);
    for (size_t i = 0; i < params.size(); ++i) {
      params[i] = static_cast<float>(params[i] - learning_rate * gradient[i]);
    }
  }
};

class Float64SGDMRule : public Float64Rule<Float64SGDMRule> {
 public:
  Float64SGDMRule(const SGDMOptions& options, const Layout& params, double learning_rate)
      : Float64Rule(params, {"momentum"}, learning_rate, options.schedule),
        momentum_(options.momentum) {}

  template <std::floating_point Number>
  void Step(const StepInfo& info, std::span<const Number> gradient, std::span<float> params,
            std::span<float> state) const {
    const double learning_rate = LearningRate(info);
    for (size_t i = 0; i < params.size(); ++i) {
      const double momentum = momentum_ * state[i] + gradient[i];
      state[i] = static_cast<float>(momentum);
      params[i] = static_cast<float>(params[i] - learning_rate * momentum);
    }
  }

 private:
  double momentum_;
};

std::unique_ptr<UpdateRule> BindInFloat64(const AdamOptions& options, const Layout& params,
                                          double learning_rate) {
  return std::make_unique<Float64AdamRule>(options, 0, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindInFloat64(const AdamWOptions& options, const Layout& params,
                                          double learning_rate) {
  return std::make_unique<Float64AdamRule>(options, options.weight_decay, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindInFloat64(const SGDOptions& options, const Layout& params,
                                          double learning_rate) {
  return std::make_unique<Float64SGDRule>(options, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindInFloat64(const SGDMOptions& options, const Layout& params,
                                          double learning_rate) {
  return std::make_unique<Float64SGDMRule>(options, params, learning_rate);
}

const Range kBelow1 = {.min = 0, .max = 1, .open_max = true};

}  // namespace

void AdamOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, Above(0), "Step size.");
  VisitSchedule(v, &schedule);
  v.Field("beta1", &beta1, kBelow1, "Decay of the first moment, the mean of the gradient.");
  v.Field("beta2", &beta2, kBelow1, "Decay of the second moment, the mean of its square.");
  v.Field("epsilon", &epsilon, AtLeast(0), "Added to the root in the denominator.");
  v.Field("epsilon_root", &epsilon_root, AtLeast(0),
          "Added under the root in the denominator. The JAX package has 1e-8 here, which damps "
          "gradients far below 1e-4.");
}

void AdamWOptions::Visit(FieldVisitor& v) {
  AdamOptions::Visit(v);
  v.Field("weight_decay", &weight_decay, AtLeast(0),
          "learning_rate times this times the params is subtracted as well.");
}

void SGDOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, Above(0), "Step size.");
  VisitSchedule(v, &schedule);
}

void SGDMOptions::Visit(FieldVisitor& v) {
  SGDOptions::Visit(v);
  v.Field("momentum", &momentum, kBelow1, "Decay of the sum of gradients that is the direction.");
}

template <class Options>
InFloat64<Options>::InFloat64(const Options& options)
    : LearnedOptimizer(
          ScalarsLayout({"log_lr"}),
          NeedOfNumSteps(Options::kType, CheckOptions(Options::kType, options).schedule)),
      options_(options) {}

template <class Options>
void InFloat64<Options>::DoInitTheta(Key, std::span<float> theta) const {
  theta[0] = Log(options_.learning_rate);
}

template <class Options>
std::unique_ptr<UpdateRule> InFloat64<Options>::DoBind(const Layout& params,
                                                       std::span<const float> theta) const {
  // Its float32 logarithm does not have all digits of the option.
  const bool initial = theta[0] == Log(options_.learning_rate);
  return BindInFloat64(options_, params,
                       initial ? options_.learning_rate : std::exp(double{theta[0]}));
}

template class InFloat64<AdamOptions>;
template class InFloat64<AdamWOptions>;
template class InFloat64<SGDOptions>;
template class InFloat64<SGDMOptions>;

}  // namespace lopt
