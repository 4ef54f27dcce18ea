#include "lopt/lopt/rules/hand_designed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "lopt/base/options.h"
#include "lopt/lopt/rules/adam_step_device.h"
#include "lopt/lopt/rules/matrix_rules.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

class NesterovRule : public UpdateRule {
 public:
  NesterovRule(const NesterovOptions& options, const Layout& params, float learning_rate)
      : UpdateRule(params, SlotsLayout(params, {"momentum"})),
        learning_rate_(learning_rate, options.schedule),
        momentum_(static_cast<float>(options.momentum)),
        weight_decay_(static_cast<float>(options.weight_decay)) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const float lr = learning_rate_.At(info);
    for (size_t i = 0; i < params.size(); ++i) {
      const float g = gradient[i] + weight_decay_ * params[i];
      state[i] = momentum_ * state[i] + g;
      params[i] -= lr * (g + momentum_ * state[i]);
    }
  }

  ScheduledRate learning_rate_;
  float momentum_;
  float weight_decay_;
};

class NAdamWRule : public UpdateRule {
 public:
  NAdamWRule(const NAdamWOptions& options, const Layout& params, float learning_rate)
      : UpdateRule(params, SlotsLayout(params, {"m", "v"})),
        learning_rate_(learning_rate, options.schedule),
        options_(options) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const auto t = static_cast<double>(info.step + 1);
    const double rate = learning_rate_.At(info);
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto epsilon = static_cast<float>(options_.epsilon);
    const auto lr = static_cast<float>(rate);
    const auto kept = static_cast<float>(1 - rate * options_.weight_decay);
    const auto of_m = static_cast<float>(options_.beta1 / (1 - std::pow(options_.beta1, t + 1)));
    const auto of_g = static_cast<float>((1 - options_.beta1) / (1 - std::pow(options_.beta1, t)));
    const auto of_v = static_cast<float>(1 / (1 - std::pow(options_.beta2, t)));
    const std::span<float> m = state.first(params.size());
    const std::span<float> v = state.subspan(params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      const float g = AddToMoments(beta1, beta2, gradient[i], m[i], v[i]);
      params[i] =
          kept * params[i] - lr * (of_m * m[i] + of_g * g) / (std::sqrt(of_v * v[i]) + epsilon);
    }
  }

  ScheduledRate learning_rate_;
  NAdamWOptions options_;
};

class LionRule : public UpdateRule {
 public:
  LionRule(const LionOptions& options, const Layout& params, float learning_rate)
      : UpdateRule(params, SlotsLayout(params, {"m"})),
        learning_rate_(learning_rate, options.schedule),
        options_(options) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const float lr = learning_rate_.At(info);
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto kept = static_cast<float>(1 - double{lr} * options_.weight_decay);
    for (size_t i = 0; i < params.size(); ++i) {
      const float g = gradient[i];
      const float mixed = beta1 * state[i] + (1.0f - beta1) * g;
      // A gradient that is not a number is not hidden by its sign.
      const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
      params[i] = kept * params[i] - lr * sign;
      state[i] = beta2 * state[i] + (1.0f - beta2) * g;
    }
  }

  ScheduledRate learning_rate_;
  LionOptions options_;
};

class ScheduleFreeAdamWRule : public UpdateRule {
 public:
  ScheduleFreeAdamWRule(const ScheduleFreeAdamWOptions& options, const Layout& params,
                        float learning_rate)
      : UpdateRule(params, SlotsLayout(params, {"x", "z", "v"})),
        learning_rate_(learning_rate),
        options_(options) {}

  double LearningRate(const StepInfo& info) const override {
    return static_cast<float>(double{learning_rate_} * Warmed(info));
  }

 private:
  void DoInitState(const StepInfo&, std::span<const float> params,
                   std::span<float> state) const override {
    std::ranges::fill(state, 0.0f);
    std::ranges::copy(params, state.begin());
    std::ranges::copy(params, state.subspan(params.size()).begin());
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const auto t = static_cast<double>(info.step + 1);
    const double rising = Rising(info);
    const double warmed = Warmed(info);
    const auto lr = static_cast<float>(double{learning_rate_} * warmed);
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto epsilon = static_cast<float>(options_.epsilon);
    const auto decay = static_cast<float>(options_.weight_decay);
    const auto of_v = static_cast<float>(1 / (1 - std::pow(options_.beta2, t)));
    const auto c = static_cast<float>(warmed * warmed / SumOfSquares(t, rising));
    const size_t n = params.size();
    const std::span<float> x = state.first(n);
    const std::span<float> z = state.subspan(n, n);
    const std::span<float> v = state.subspan(2 * n);
    for (size_t i = 0; i < n; ++i) {
      const float g = AddSquare(beta2, gradient[i], v[i]);
      z[i] -= lr * (g / (std::sqrt(of_v * v[i]) + epsilon) + decay * params[i]);
      x[i] = (1.0f - c) * x[i] + c * z[i];
      params[i] = beta1 * x[i] + (1.0f - beta1) * z[i];
    }
  }

  std::span<const float> DoEvalParams(std::span<const float> params,
                                      std::span<const float> state) const override {
    return state.first(params.size());
  }

  // Updates over which the learning rate rises.
  double Rising(const StepInfo& info) const {
    return std::round(options_.warmup_fraction * static_cast<double>(info.num_steps));
  }
  // lr_t / lr.
  double Warmed(const StepInfo& info) const {
    const auto t = static_cast<double>(info.step + 1);
    const double rising = Rising(info);
    return t < rising ? t / rising : 1;
  }

  // Of lr_k / lr for k from 1 to t, which rises over the first `rising`.
  static double SumOfSquares(double t, double rising) {
    const double risen = std::min(t, rising);
    const double of_rise =
        rising == 0 ? 0 : risen * (risen + 1) * (2 * risen + 1) / (6 * rising * rising);
    return of_rise + t - risen;
  }

  float learning_rate_;
  ScheduleFreeAdamWOptions options_;
};

class ProdigyRule : public UpdateRule {
 public:
  ProdigyRule(const ProdigyOptions& options, const Layout& params, float learning_rate)
      : UpdateRule(params, StateOf(params)),
        learning_rate_(learning_rate, options.schedule),
        options_(options) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  static Layout StateOf(const Layout& params) {
    std::vector<std::pair<std::string, Shape>> tensors = {{"d", {1}}, {"r", {1}}};
    const Layout slots = SlotsLayout(params, {"x0", "m", "v", "s"});
    for (const LayoutEntry& entry : slots.entries()) {
      tensors.emplace_back(entry.name, entry.shape);
    }
    return Layout(std::move(tensors));
  }

  void DoInitState(const StepInfo&, std::span<const float> params,
                   std::span<float> state) const override {
    std::ranges::fill(state, 0.0f);
    state[0] = static_cast<float>(options_.initial_distance);
    std::ranges::copy(params, state.subspan(2).begin());
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    const size_t n = params.size();
    float& d = state[0];
    float& r = state[1];
    const std::span<const float> x0 = state.subspan(2, n);
    const std::span<float> m = state.subspan(2 + n, n);
    const std::span<float> v = state.subspan(2 + 2 * n, n);
    const std::span<float> s = state.subspan(2 + 3 * n, n);
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const double kept_part = std::sqrt(options_.beta2);
    const double rate = learning_rate_.At(info);
    const double in_units = double{d} / options_.initial_distance;
    const double weight = (1 - kept_part) * rate * in_units * in_units;
    double product = 0;
    double norm = 0;
    for (size_t i = 0; i < n; ++i) {
      const double g = gradient[i];
      AddToMoments(beta1, beta2, d * gradient[i], m[i], v[i]);
      product += g * (double{x0[i]} - double{params[i]});
      s[i] = static_cast<float>(kept_part * double{s[i]} + weight * g);
      norm += std::abs(double{s[i]});
    }
    if (norm == 0) return;
    r = static_cast<float>(kept_part * double{r} + weight * product);
    const auto lr = static_cast<float>(rate * double{d});
    const auto kept = static_cast<float>(1 - double{lr} * options_.weight_decay);
    const auto epsilon =
        static_cast<float>(std::max(double{d} * options_.epsilon, double{FLT_MIN}));
    for (size_t i = 0; i < n; ++i) {
      params[i] = kept * params[i] - lr * m[i] / (std::sqrt(v[i]) + epsilon);
    }
    d = std::max(d, static_cast<float>(double{r} / norm));
  }

  ScheduledRate learning_rate_;
  ProdigyOptions options_;
};

std::unique_ptr<UpdateRule> BindRule(const NesterovOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<NesterovRule>(options, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindRule(const NAdamWOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<NAdamWRule>(options, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindRule(const LionOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<LionRule>(options, params, learning_rate);
}
std::unique_ptr<UpdateRule> BindRule(const ScheduleFreeAdamWOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<ScheduleFreeAdamWRule>(options, params, learning_rate);
}

std::unique_ptr<UpdateRule> BindRule(const ProdigyOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<ProdigyRule>(options, params, learning_rate);
}

const Range kDecay = {.min = 0, .max = 1, .open_max = true};
const Range kNotZero = {.min = 1e-37};  // in float32, to which denormal numbers are zeros

void VisitRate(FieldVisitor& v, double* learning_rate) {
  v.Field("learning_rate", learning_rate, Above(0), "Initial learning rate.");
}

void VisitDecays(FieldVisitor& v, double* beta1, double* beta2) {
  v.Field("beta1", beta1, kDecay, "Decay of the mean of the gradient.");
  v.Field("beta2", beta2, kDecay, "Decay of the second running mean.");
}

void VisitEpsilon(FieldVisitor& v, double* epsilon) {
  v.Field("epsilon", epsilon, kNotZero, "Number added to the root of the second moment.");
}

void VisitWeightDecay(FieldVisitor& v, double* weight_decay) {
  v.Field("weight_decay", weight_decay, AtLeast(0),
          "Decoupled weight decay, as a multiple of the learning rate.");
}

template <class Options>
std::string NeedOf(const Options& options) {
  CheckOptions(Options::kType, options);
  if constexpr (requires { options.schedule; }) {
    return NeedOfNumSteps(Options::kType, options.schedule);
  } else if constexpr (requires { options.warmup_fraction; }) {
    return options.warmup_fraction == 0 ? ""
                                        : fmt::format("{} with a warmup_fraction", Options::kType);
  } else {
    return "";
  }
}

// In float32, as the rules have them.
template <class Options>
Options WithDecaysBelowOne(Options options) {
  const auto limit = [](double* decay) { *decay = std::min(*decay, double{kLargestDecay}); };
  if constexpr (requires { options.momentum; }) {
    limit(&options.momentum);
  } else {
    limit(&options.beta1);
    limit(&options.beta2);
  }
  return options;
}

}  // namespace

void NesterovOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  v.Field("momentum", &momentum, kDecay, "Momentum.");
  v.Field("weight_decay", &weight_decay, AtLeast(0),
          "Weight decay: this times the params is added to the gradient.");
  VisitSchedule(v, &schedule);
}

void NAdamWOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  VisitDecays(v, &beta1, &beta2);
  VisitEpsilon(v, &epsilon);
  VisitWeightDecay(v, &weight_decay);
  VisitSchedule(v, &schedule);
}

void LionOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  VisitDecays(v, &beta1, &beta2);
  VisitWeightDecay(v, &weight_decay);
  VisitSchedule(v, &schedule);
}

void ScheduleFreeAdamWOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  v.Field("beta1", &beta1, kDecay,
          "Where gradients are taken: this part of the way from the stepped params to their "
          "average.");
  v.Field("beta2", &beta2, kDecay,
          "Decay of the second moment, the mean of the gradient's square.");
  VisitEpsilon(v, &epsilon);
  VisitWeightDecay(v, &weight_decay);
  v.Field("warmup_fraction", &warmup_fraction, {.min = 0, .max = 1},
          "Part of the run over which the learning rate rises.");
}

void ProdigyOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  VisitDecays(v, &beta1, &beta2);
  VisitEpsilon(v, &epsilon);
  VisitWeightDecay(v, &weight_decay);
  v.Field("initial_distance", &initial_distance, kNotZero,
          "First estimate of the distance to a solution, which multiplies the learning rate.");
  VisitSchedule(v, &schedule);
}

void MuonOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  v.Field("momentum", &momentum, kDecay, "Momentum of matrices.");
  VisitWeightDecay(v, &weight_decay);
  v.Field("adamw_rate", &adamw_rate, Above(0),
          "Learning rate of AdamW, which steps all but matrices, as a multiple of this one.");
  v.Choice("scale", &scale, kMuonScales,
           "What steps of matrices are multiplied by: sqrt(max(1, out / in)), or 0.2 sqrt(max(in, "
           "out)).");
  VisitSchedule(v, &schedule);
}

void SOAPOptions::Visit(FieldVisitor& v) {
  VisitRate(v, &learning_rate);
  VisitDecays(v, &beta1, &beta2);
  VisitEpsilon(v, &epsilon);
  VisitWeightDecay(v, &weight_decay);
  v.Field("frequency", &frequency, AtLeast(1), "Updates between new eigenbases.");
  v.Field("max_side", &max_side, AtLeast(0), "Longer sides of matrices have no eigenbasis.");
  VisitSchedule(v, &schedule);
}

template <class Options>
HandDesigned<Options>::HandDesigned(const Options& options)
    : LearnedOptimizer(ScalarsLayout({"log_lr"}), NeedOf(options)),
      options_(WithDecaysBelowOne(options)) {}

template <class Options>
void HandDesigned<Options>::DoInitTheta(Key, std::span<float> theta) const {
  theta[0] = Log(options_.learning_rate);
}

template <class Options>
std::unique_ptr<UpdateRule> HandDesigned<Options>::DoBind(const Layout& params,
                                                          std::span<const float> theta) const {
  return BindRule(options_, params, std::exp(theta[0]));
}

template class HandDesigned<NesterovOptions>;
template class HandDesigned<NAdamWOptions>;
template class HandDesigned<LionOptions>;
template class HandDesigned<ScheduleFreeAdamWOptions>;
template class HandDesigned<ProdigyOptions>;
template class HandDesigned<MuonOptions>;
template class HandDesigned<SOAPOptions>;

}  // namespace lopt
