#include "lopt/lopt/rules/learnable.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lopt/base/options.h"
#include "lopt/lopt/rules/adam_step_device.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

// a b + c with the product exact, on every instruction set.
float FusedMultiplyAdd(float a, float b, float c) {
  return static_cast<float>(double{a} * double{b} + double{c});
}

// The decay of a running mean that theta has the logarithm of 1 minus of.
float DecayOfTheta(float log_of_rest) {
  return std::clamp(1.0f - std::exp(log_of_rest), 0.0f, kLargestDecay);
}

class SGDRule : public UpdateRule {
 public:
  SGDRule(const Layout& params, std::span<const float> theta, const LearnableSGDOptions& options)
      : UpdateRule(params, Layout()), learning_rate_(std::exp(theta[0]), options.schedule) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float>, Workspace&) const override {
    const float learning_rate = learning_rate_.At(info);
    for (size_t i = 0; i < params.size(); ++i) {
      params[i] = FusedMultiplyAdd(-learning_rate, gradient[i], params[i]);
    }
  }

  ScheduledRate learning_rate_;
};

class SGDMRule : public UpdateRule {
 public:
  SGDMRule(const Layout& params, std::span<const float> theta, const LearnableSGDMOptions& options)
      : UpdateRule(params, SlotsLayout(params, {"momentum"})),
        learning_rate_(std::exp(theta[0]), options.schedule),
        momentum_(1.0f - std::exp(theta[1])) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const float learning_rate = learning_rate_.At(info);
    for (size_t i = 0; i < params.size(); ++i) {
      state[i] = FusedMultiplyAdd(momentum_, state[i], gradient[i]);
      params[i] = FusedMultiplyAdd(-learning_rate, state[i], params[i]);
    }
  }

  ScheduledRate learning_rate_;
  float momentum_;
};

class AdamRule : public UpdateRule {
 public:
  AdamRule(const Layout& params, std::span<const float> theta, const LearnableAdamOptions& options)
      : UpdateRule(params, SlotsLayout(params, {"m", "v"})),
        learning_rate_(std::exp(theta[0]), options.schedule),
        beta1_(DecayOfTheta(theta[1])),
        beta2_(DecayOfTheta(theta[2])),
        epsilon_(std::exp(theta[3])),
        epsilon_root_(static_cast<float>(options.epsilon_root)),
        weight_decay_(options.weight_decay) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const float learning_rate = learning_rate_.At(info);
    AdamStep step = {.beta1 = beta1_,
                     .beta2 = beta2_,
                     .epsilon = epsilon_,
                     .epsilon_root = epsilon_root_,
                     .learning_rate = learning_rate,
                     .kept = static_cast<float>(1.0 - double{learning_rate} * weight_decay_)};
    step.CorrectBias(info.step);
    step.Apply(gradient, params, state.first(params.size()), state.subspan(params.size()));
  }

  ScheduledRate learning_rate_;
  float beta1_;
  float beta2_;
  float epsilon_;
  float epsilon_root_;
  double weight_decay_;
};

const Range kBelowOne = {.min = 0, .max = 1, .open_max = true};

}  // namespace

void LearnableSGDOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, Above(0), "Initial learning rate.");
  VisitSchedule(v, &schedule);
}

LearnableSGD::LearnableSGD(const LearnableSGDOptions& options)
    : LearnedOptimizer(
          ScalarsLayout({"log_lr"}),
          NeedOfNumSteps("LearnableSGD", CheckOptions("LearnableSGD", options).schedule)),
      options_(options) {}

void LearnableSGD::DoInitTheta(Key, std::span<float> theta) const {
  theta[0] = Log(options_.learning_rate);
}

std::unique_ptr<UpdateRule> LearnableSGD::DoBind(const Layout& params,
                                                 std::span<const float> theta) const {
  return std::make_unique<SGDRule>(params, theta, options_);
}

void LearnableSGDMOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, Above(0), "Initial learning rate.");
  v.Field("momentum", &momentum, kBelowOne, "Initial momentum.");
  VisitSchedule(v, &schedule);
}

LearnableSGDM::LearnableSGDM(const LearnableSGDMOptions& options)
    : LearnedOptimizer(
          ScalarsLayout({"log_lr", "one_minus_momentum"}),
          NeedOfNumSteps("LearnableSGDM", CheckOptions("LearnableSGDM", options).schedule)),
      options_(options) {}

void LearnableSGDM::DoInitTheta(Key, std::span<float> theta) const {
  theta[0] = Log(options_.learning_rate);
  theta[1] = Log(1 - options_.momentum);
}

std::unique_ptr<UpdateRule> LearnableSGDM::DoBind(const Layout& params,
                                                  std::span<const float> theta) const {
  return std::make_unique<SGDMRule>(params, theta, options_);
}

void LearnableAdamOptions::Visit(FieldVisitor& v) {
  v.Field("learning_rate", &learning_rate, Above(0), "Initial learning rate.");
  v.Field("beta1", &beta1, kBelowOne,
          "Initial decay of the first moment, the mean of the gradient.");
  v.Field("beta2", &beta2, kBelowOne,
          "Initial decay of the second moment, the mean of its square.");
  v.Field("epsilon", &epsilon, AtLeast(1e-37),
          "Initial number added to the root of the second moment.");
  v.Field("epsilon_root", &epsilon_root, AtLeast(0),
          "Number added to the second moment under the root; not learned.");
  VisitSchedule(v, &schedule);
  v.Field("weight_decay", &weight_decay, AtLeast(0),
          "Decoupled weight decay, as a multiple of the learning rate; not learned.");
}

LearnableAdam::LearnableAdam(const LearnableAdamOptions& options)
    : LearnedOptimizer(
          ScalarsLayout({"log_lr", "one_minus_beta1", "one_minus_beta2", "log_epsilon"}),
          NeedOfNumSteps("LearnableAdam", CheckOptions("LearnableAdam", options).schedule)),
      options_(options) {}

void LearnableAdam::DoInitTheta(Key, std::span<float> theta) const {
  theta[0] = Log(options_.learning_rate);
  theta[1] = Log(1 - options_.beta1);
  theta[2] = Log(1 - options_.beta2);
  theta[3] = Log(options_.epsilon);
}

std::unique_ptr<UpdateRule> LearnableAdam::DoBind(const Layout& params,
                                                  std::span<const float> theta) const {
  return std::make_unique<AdamRule>(params, theta, options_);
}

}  // namespace lopt
