#include "lopt/lopt/rules/scaled_steps.h"

#include <cmath>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/lopt/use/tensor_updates.h"

namespace lopt {
namespace {

class ScaledSteps : public UpdateRule {
 public:
  ScaledSteps(std::unique_ptr<UpdateRule> rule, float multiplier)
      : UpdateRule(rule->params_layout(), rule->state_layout()),
        rule_(std::move(rule)),
        multiplier_(multiplier) {}

 private:
  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(info, params, state);
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    RunUpdate({.rule = rule_.get(),
               .info = info,
               .options = {.lr = multiplier_},
               .gradient = gradient,
               .params = params,
               .state = state},
              scratch);
  }

  const std::unique_ptr<UpdateRule> rule_;
  const float multiplier_;
};

}  // namespace

std::unique_ptr<UpdateRule> ScaleSteps(std::unique_ptr<UpdateRule> rule, float multiplier) {
  Require(multiplier > 0 && std::isfinite(multiplier),
          "step multiplier: wanted a positive number, got {}", multiplier);
  RequireStepsMakeParams(*rule, "step multiplier");
  if (multiplier == 1) return rule;
  return std::make_unique<ScaledSteps>(std::move(rule), multiplier);
}

}  // namespace lopt
