#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/worker.h"

namespace lopt {

// An estimator that gives what a function says, and counts its windows in its state "windows".
class FakeEstimator final : public GradientEstimator {
 public:
  using Function =
      std::function<GradientEstimate(const WorkerWeights&, Key key, int64_t earlier_windows)>;
  FakeEstimator(Layout theta, Function function)
      : GradientEstimator(std::move(theta)), function_(std::move(function)) {}

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights&, Key key) const override {
    EstimatorState state;
    state.Set("windows", Array(DType::kInt64, {}));
    const uint32_t words[] = {key.hi, key.lo};
    state.Set("start_key", Array::Of<uint32_t>({2}, words));
    return state;
  }
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override {
    int64_t& windows = state->At("windows").As<int64_t>()[0];
    return function_(weights, key, windows++);
  }

  Function function_;
};

inline const Layout& FakeTheta() {
  static const Layout layout({{"log_lr", {1}}});
  return layout;
}

inline std::shared_ptr<const ConfiguredEstimator> Configured(FakeEstimator::Function function,
                                                             double weight = 1,
                                                             std::string task = "Fake") {
  return std::make_shared<ConfiguredEstimator>(ConfiguredEstimator{
      .estimator = std::make_shared<FakeEstimator>(FakeTheta(), std::move(function)),
      .weight = weight,
      .task = std::move(task)});
}

// Always this gradient (of one number) and loss.
inline std::shared_ptr<const ConfiguredEstimator> Always(float gradient, double loss,
                                                         double weight = 1) {
  return Configured(
      [=](const WorkerWeights&, Key, int64_t) {
        return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, gradient),
                                .mean_loss = loss,
                                .counts = {.inner_steps = 10, .non_finite = 0, .episodes_ended = 1},
                                .metrics = {{"double_loss", 2 * loss}}};
      },
      weight);
}

}  // namespace lopt
