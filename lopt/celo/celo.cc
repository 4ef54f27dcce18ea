#include "lopt/lopt/celo/celo.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt_kernel.h"
#include "lopt/lopt/celo/celo_kernel.h"
#include "lopt/lopt/celo/celo_scheduler.h"
#include "lopt/lopt/network/plain_network.h"
#include "lopt/lopt/network/sums.h"

namespace lopt {
namespace {

constexpr int kCeloDecays = 3;
constexpr double kScaleFloor = 1e-9;  // added to the mean square of the params

using CeloTensors = CeloScheduler::Tensors;

AdafacPlaces CeloPlaces() { return {kCeloDecays, 1, kCeloDecays, true}; }

// The network's, [1, ...]: a bank of one.
CeloTensors CeloNetworkTensors() {
  constexpr int64_t kBlocks[] = {1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3};
  constexpr int64_t kUnits = Celo::kHidden;
  CeloTensors tensors;
  for (const int64_t rows : kBlocks) {
    tensors.emplace_back("ff_mod_stack/w0__" + std::to_string(tensors.size()),
                         Shape{1, rows, kUnits});
  }
  tensors.emplace_back("ff_mod_stack/b0", Shape{1, kUnits});
  tensors.emplace_back("ff_mod_stack/w1", Shape{1, kUnits, kUnits});
  tensors.emplace_back("ff_mod_stack/b1", Shape{1, kUnits});
  tensors.emplace_back("ff_mod_stack/w2", Shape{1, kUnits, Celo::kOutputs});
  tensors.emplace_back("ff_mod_stack/b2", Shape{1, Celo::kOutputs});
  return tensors;
}

Layout CeloTheta(int64_t lstm_size) {
  CeloTensors tensors = CeloNetworkTensors();
  std::ranges::move(CeloScheduler::ThetaTensors(lstm_size, true), std::back_inserter(tensors));
  return Layout(std::move(tensors));
}

Layout CeloState(const CeloOptions& options, const Layout& params) {
  CeloTensors tensors =
      options.scheduled ? CeloScheduler::StateTensors(options.lstm_size) : CeloTensors();
  const Layout moments = AdafacState(CeloPlaces(), params);
  for (const LayoutEntry& e : moments.entries()) tensors.emplace_back(e.name, e.shape);
  return Layout(std::move(tensors));
}

Layout MomentsState(int64_t lstm_size, const Layout& params) {
  CeloTensors tensors = CeloScheduler::StateTensors(lstm_size);
  for (const LayoutEntry& e : params.entries()) {
    tensors.emplace_back("m/" + e.name, e.shape);
    tensors.emplace_back("r/" + e.name, e.shape);
  }
  return Layout(std::move(tensors));
}

// The network without its third output, as the kernel reads it; theta begins with it.
PackedNetwork CeloNetwork(std::span<const float> theta) {
  constexpr int64_t kUnits = Celo::kHidden;
  constexpr int64_t kHiddenWeights = (Celo::kFeatures + 1 + kUnits + 1) * kUnits;
  std::vector<float> two(theta.begin(), theta.begin() + kHiddenWeights);
  for (int64_t row = 0; row <= kUnits; ++row) {
    const float* outputs = theta.data() + kHiddenWeights + row * Celo::kOutputs;
    two.insert(two.end(), outputs, outputs + 2);
  }
  return {Celo::kFeatures, 0, kUnits, 2, two};
}

// A multiplier of Celo and CeloAdam.
float Multiplier(float output) { return 0.1f * std::exp(output); }

class CeloRule : public UpdateRule {
 public:
  CeloRule(const CeloOptions& options, const Layout& layout, const Layout& params,
           std::span<const float> theta)
      : UpdateRule(params, CeloState(options, params)),
        scheduled_(options.scheduled),
        scheduler_(options.lstm_size, layout, theta),
        steps_({.at = CeloPlaces(),
                .decays = AdafacDecays({.9f, .99f, .999f}, {.999f}, {.9f, .99f, .999f}),
                .tensors = AdafacTensors(
                    params, state_layout(),
                    scheduled_ ? CeloScheduler::StateTensors(options.lstm_size).size() : 0),
                .network = CeloNetwork(theta),
                .exp_mult = Celo::kMultiplier,
                .step_mult = Celo::kMultiplier,
                .momentum_epsilon = 0}) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const std::span<float> g = scratch.Take<float>(std::ssize(gradient));
    FastCeloClip(gradient, g);
    const float multiplier = scheduled_ ? Multiplier(scheduler_.Step(info, state, scratch)) : 1;
    steps_.Update(static_cast<float>(info.step), multiplier, g, params, state, scratch);
  }

  bool scheduled_;
  CeloScheduler scheduler_;
  AdafacSteps steps_;
};

// CeloAdam and Sinv6.
class ScheduledMoments : public UpdateRule {
 public:
  ScheduledMoments(int64_t lstm_size, const Layout& layout, const Layout& params,
                   std::span<const float> theta)
      : UpdateRule(params, MomentsState(lstm_size, params)), scheduler_(lstm_size, layout, theta) {}

 private:
  virtual ScheduledMomentsStep StepOf(float output, int64_t step) const = 0;
  // What a tensor's rate is multiplied by, from its params.
  virtual float TensorFactor(std::span<const float> params) const = 0;

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const ScheduledMomentsStep step = StepOf(scheduler_.Step(info, state, scratch), info.step);
    std::span<float> moments = state.subspan(scheduler_.state_size());
    for (const LayoutEntry& e : params_layout().entries()) {
      const std::span<float> p = params.subspan(e.offset, e.size);
      ScheduledMomentsStep of_tensor = step;
      of_tensor.rate *= TensorFactor(p);
      of_tensor.Apply(gradient.subspan(e.offset, e.size), p, moments.first(p.size()),
                      moments.subspan(p.size(), p.size()));
      moments = moments.subspan(2 * p.size());
    }
  }

  CeloScheduler scheduler_;
};

class CeloAdamRule : public ScheduledMoments {
 public:
  using ScheduledMoments::ScheduledMoments;

 private:
  ScheduledMomentsStep StepOf(float output, int64_t step) const override {
    const auto correction = [&](float decay) {
      return static_cast<float>(1 / (1 - std::pow(double{decay}, static_cast<double>(step + 1))));
    };
    return {.rate = Multiplier(output) * Celo::kMultiplier,
            .m_factor = correction(ScheduledMomentsStep::kMomentum),
            .r_factor = correction(ScheduledMomentsStep::kSquares)};
  }
  float TensorFactor(std::span<const float>) const override { return 1; }
};

class Sinv6Rule : public ScheduledMoments {
 public:
  using ScheduledMoments::ScheduledMoments;

 private:
  ScheduledMomentsStep StepOf(float output, int64_t) const override {
    const float multiplier = output < 1e-5f ? 1e-5f : output > 1000 ? 1000 : output;
    return {.rate = multiplier * Celo::kMultiplier, .m_factor = 1, .r_factor = 1};
  }
  float TensorFactor(std::span<const float> params) const override {
    return static_cast<float>(
        std::sqrt(DotInLanes(params, params) / static_cast<double>(params.size()) + kScaleFloor));
  }
};

void VisitLstmSize(FieldVisitor& v, int64_t* lstm_size) {
  v.Field("lstm_size", lstm_size, Between(1, 65536), "Hidden units of the scheduler's LSTM.");
}

}  // namespace

void CeloOptions::Visit(FieldVisitor& v) {
  v.Field("scheduled", &scheduled,
          "Whether the scheduler sizes the steps, which needs the losses and the run's length; "
          "false in the first phase of meta-training.");
  VisitLstmSize(v, &lstm_size);
}

void ScheduledMomentsOptions::Visit(FieldVisitor& v) { VisitLstmSize(v, &lstm_size); }

Celo::Celo(const CeloOptions& options)
    : LearnedOptimizer(CeloTheta(CheckOptions("Celo", options).lstm_size),
                       options.scheduled ? "Celo" : ""),
      options_(options) {}

void Celo::DoInitTheta(Key key, std::span<float> theta) const {
  std::ranges::fill(theta, 0.0f);
  const auto draw = [&](uint64_t layer, const char* first, int64_t in, int64_t out) {
    const int64_t offset = theta_layout().Find(first).offset;
    InitLayer(FoldIn(key, layer), in, theta.subspan(offset, in * out));
  };
  draw(0, "ff_mod_stack/w0__0", kFeatures, kHidden);
  draw(1, "ff_mod_stack/w1", kHidden, kHidden);
  draw(2, "ff_mod_stack/w2", kHidden, kOutputs);
  CeloScheduler::InitTheta(FoldIn(key, 3), theta_layout(), theta);
}

int64_t Celo::run_state_size() const {
  return options_.scheduled ? CeloScheduler::StateSize(options_.lstm_size) : 0;
}

std::unique_ptr<UpdateRule> Celo::DoBind(const Layout& params, std::span<const float> theta) const {
  return std::make_unique<CeloRule>(options_, theta_layout(), params, theta);
}

ScheduledMomentsLOpt::ScheduledMomentsLOpt(const char* type, const ScheduledMomentsOptions& options)
    : LearnedOptimizer(
          Layout(CeloScheduler::ThetaTensors(CheckOptions(type, options).lstm_size, false)), type),
      options_(options) {}

int64_t ScheduledMomentsLOpt::run_state_size() const {
  return CeloScheduler::StateSize(options_.lstm_size);
}

void ScheduledMomentsLOpt::DoInitTheta(Key key, std::span<float> theta) const {
  std::ranges::fill(theta, 0.0f);
  CeloScheduler::InitTheta(key, theta_layout(), theta);
}

std::unique_ptr<UpdateRule> CeloAdam::DoBind(const Layout& params,
                                             std::span<const float> theta) const {
  return std::make_unique<CeloAdamRule>(options_.lstm_size, theta_layout(), params, theta);
}

std::unique_ptr<UpdateRule> Sinv6::DoBind(const Layout& params,
                                          std::span<const float> theta) const {
  return std::make_unique<Sinv6Rule>(options_.lstm_size, theta_layout(), params, theta);
}

}  // namespace lopt
