#include "lopt/learned_optimizer.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

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

void UpdateRule::Update(const StepInfo& info, std::span<const float> gradient,
                        std::span<float> params, std::span<float> state, Workspace& scratch) const {
  CheckSize("gradient", gradient.size(), params_layout_.size());
  CheckSize("params", params.size(), params_layout_.size());
  CheckSize("state", state.size(), state_layout_.size());
  DoUpdate(info, gradient, params, state, scratch);
}

void UpdateRule::DoInitState(const StepInfo&, std::span<const float>,
                             std::span<float> state) const {
  std::fill(state.begin(), state.end(), 0.0f);
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
  return DoBind(params, theta);
}

Layout LearnedOptimizer::StateLayout(const Layout& params) const {
  const std::vector<float> theta(static_cast<size_t>(theta_layout_.size()), 0.0f);
  return Bind(params, theta)->state_layout();
}

}  // namespace lopt
