#include "lopt/lopt/learned_optimizer.h"

#include <algorithm>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"

namespace lopt {
namespace {

void CheckSize(const char* what, size_t got, int64_t wanted) {
  Require(static_cast<int64_t>(got) == wanted, "UpdateRule: {} has {} numbers, its layout has {}",
          what, got, wanted);
}

}  // namespace

void UpdateRule::InitState(const StepInfo& info, std::span<const float> params,
                           std::span<float> state) const {
  CheckSize("params", params.size(), params_layout_.size());
  CheckSize("state", state.size(), state_layout_.size());
  DoInitState(info, params, state);
}

void UpdateRule::CheckUpdate(const StepInfo& info, size_t gradient, size_t params,
                             size_t state) const {
  CheckSize("gradient", gradient, params_layout_.size());
  CheckSize("params", params, params_layout_.size());
  CheckSize("state", state, state_layout_.size());
  Require(needs_num_steps_.empty() || info.step < info.num_steps,
          "{} needs the length of the run: step {} is not one of a run of {} steps "
          "(StepInfo::num_steps; 0 means that the run's length is not known)",
          needs_num_steps_, info.step, info.num_steps);
}

void UpdateRule::Update(const StepInfo& info, std::span<const float> gradient,
                        std::span<float> params, std::span<float> state, Workspace& scratch) const {
  CheckUpdate(info, gradient.size(), params.size(), state.size());
  const FlushDenormals flush;
  DoUpdate(info, gradient, params, state, scratch);
}

void UpdateRule::UpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                                 std::span<float> params, std::span<float> state,
                                 Workspace& scratch) const {
  CheckUpdate(info, gradient.size(), params.size(), state.size());
  DoUpdateInFloat64(info, gradient, params, state, scratch);
}

void UpdateRule::DoUpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                                   std::span<float> params, std::span<float> state,
                                   Workspace& scratch) const {
  const FlushDenormals flush;
  const Workspace::Frame frame(scratch);
  const std::span<float> rounded = scratch.Take<float>(std::ssize(gradient));
  std::ranges::transform(gradient, rounded.begin(), [](double x) { return static_cast<float>(x); });
  DoUpdate(info, rounded, params, state, scratch);
}

std::span<const float> UpdateRule::EvalParams(std::span<const float> params,
                                              std::span<const float> state) const {
  CheckSize("params", params.size(), params_layout_.size());
  CheckSize("state", state.size(), state_layout_.size());
  return DoEvalParams(params, state);
}

std::span<const float> UpdateRule::DoEvalParams(std::span<const float> params,
                                                std::span<const float>) const {
  return params;
}

void UpdateRule::DoInitState(const StepInfo&, std::span<const float>,
                             std::span<float> state) const {
  std::fill(state.begin(), state.end(), 0.0f);
}

bool StepsMakeParams(const UpdateRule& rule) {
  const std::vector<float> params(static_cast<size_t>(rule.params_layout().size()));
  const std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
  return rule.EvalParams(params, state).data() == params.data();
}

void RequireStepsMakeParams(const UpdateRule& rule, const std::string& who) {
  Require(StepsMakeParams(rule),
          "{}: wanted an optimizer whose steps make the params that it stands for; this one keeps "
          "those, an average, in its state",
          who);
}

Eigen::VectorXf LearnedOptimizer::InitTheta(Key key) const {
  Eigen::VectorXf theta(theta_layout_.size());
  DoInitTheta(key, {theta.data(), static_cast<size_t>(theta.size())});
  return theta;
}

std::unique_ptr<UpdateRule> LearnedOptimizer::Bind(const Layout& params,
                                                   std::span<const float> theta) const {
  Require(static_cast<int64_t>(theta.size()) == theta_layout_.size(),
          "LearnedOptimizer::Bind: theta has {} numbers, its layout has {}", theta.size(),
          theta_layout_.size());
  std::unique_ptr<UpdateRule> rule = DoBind(params, theta);
  rule->needs_num_steps_ = needs_num_steps_;
  return rule;
}

Layout LearnedOptimizer::StateLayout(const Layout& params) const {
  const std::vector<float> theta(static_cast<size_t>(theta_layout_.size()), 0.0f);
  return Bind(params, theta)->state_layout();
}

}  // namespace lopt
