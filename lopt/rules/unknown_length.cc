#include "lopt/lopt/rules/unknown_length.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

Layout AveragedLayout(const Layout& params, const Layout& optimizer) {
  NamedShapes tensors;
  AppendPrefixed("optimizer/", optimizer, &tensors);
  AppendPrefixed("average/", params, &tensors);
  return Layout(std::move(tensors));
}

class AveragedRule : public UpdateRule {
 public:
  explicit AveragedRule(std::unique_ptr<UpdateRule> rule)
      : UpdateRule(rule->params_layout(),
                   AveragedLayout(rule->params_layout(), rule->state_layout())),
        rule_(std::move(rule)) {}

  double LearningRate(const StepInfo& info) const override {
    return rule_->LearningRate(Told(info));
  }

 private:
  static StepInfo Told(StepInfo info) {
    info.num_steps = UnknownLength::ToldLength(info.step);
    return info;
  }
  template <class State>
  auto OptimizerState(State state) const {
    return state.first(static_cast<size_t>(rule_->state_layout().size()));
  }
  template <class State>
  auto Average(State state) const {
    return state.subspan(static_cast<size_t>(rule_->state_layout().size()));
  }

  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(Told(info), params, OptimizerState(state));
    std::ranges::copy(params, Average(state).begin());
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    rule_->Update(Told(info), gradient, params, OptimizerState(state), scratch);
    AddToAverage(info.step, params, Average(state));
  }
  void DoUpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace& scratch) const override {
    rule_->UpdateInFloat64(Told(info), gradient, params, OptimizerState(state), scratch);
    AddToAverage(info.step, params, Average(state));
  }
  std::span<const float> DoEvalParams(std::span<const float>,
                                      std::span<const float> state) const override {
    return Average(state);
  }

  static void AddToAverage(int64_t step, std::span<const float> params, std::span<float> average) {
    constexpr double k = UnknownLength::kAveraging;
    const FlushDenormals flush;  // in every update alike
    const auto weight = static_cast<float>((k + 1) / (static_cast<double>(step) + 1 + k));
    for (size_t i = 0; i < params.size(); ++i) {
      average[i] = (1 - weight) * average[i] + weight * params[i];
    }
  }

  const std::unique_ptr<UpdateRule> rule_;
};

}  // namespace

void UnknownLengthOptions::Visit(FieldVisitor& v) {
  v.Typed("optimizer", &optimizer, OptimizerRegistry().table(),
          "The optimizer that is not told how long the training is.");
}

int64_t UnknownLength::ToldLength(int64_t t) {
  return std::max(kShortest,
                  static_cast<int64_t>(std::floor(static_cast<double>(t) / kProgress)) + 1);
}

UnknownLength::UnknownLength(const UnknownLengthOptions& options)
    : UnknownLength(OptimizerRegistry().Make(options.optimizer)) {}

UnknownLength::UnknownLength(const std::shared_ptr<const LearnedOptimizer>& optimizer)
    : OfAnotherOptimizer(optimizer, optimizer->theta_layout(), "") {
  Require(
      optimizer->run_state_size() == 0 || optimizer->needs_num_steps().empty(),
      "UnknownLength: wanted an optimizer whose state does not depend on the length of the run; "
      "Celo (unless 'scheduled' is false), CeloAdam and Sinv6 average losses over parts of that "
      "length and must know it");
}

std::unique_ptr<UpdateRule> UnknownLength::DoBind(const Layout& params,
                                                  std::span<const float> theta) const {
  auto rule = optimizer().Bind(params, theta);
  RequireStepsMakeParams(*rule, "UnknownLength");
  return std::make_unique<AveragedRule>(std::move(rule));
}

}  // namespace lopt
