#include "lopt/learner/weighting.h"

#include <cmath>
#include <cstdint>

#include "lopt/base/error.h"

namespace lopt {
namespace {

double RunningNorm(double sum, int64_t count) {
  if (count == 0) return 0;
  return sum / (1 - std::pow(kNormDecay, static_cast<double>(count)));
}

}  // namespace

Eigen::VectorXd EqualNormMean(std::span<const EstimatorGradient> estimators, NamedArrays* state) {
  const Shape shape = {std::ssize(estimators)};
  if (state->size() == 0) {
    state->Set("sum", Array(DType::kFloat64, shape));
    state->Set("count", Array(DType::kInt64, shape));
  }
  const std::span<double> sums = state->At("sum", DType::kFloat64, shape).As<double>();
  const std::span<int64_t> counts = state->At("count", DType::kInt64, shape).As<int64_t>();
  Eigen::VectorXd result;
  double weights = 0;
  for (size_t e = 0; e < estimators.size(); ++e) {
    const auto& [weight, gradient] = estimators[e];
    if (gradient.size() == 0) continue;
    if (result.size() == 0) result.setZero(gradient.size());
    weights += weight;
    const double norm = gradient.norm();
    if (!std::isfinite(norm)) {
      result += gradient;
    } else if (norm > 0) {
      sums[e] = kNormDecay * sums[e] + (1 - kNormDecay) * norm;
      ++counts[e];
      result += weight / RunningNorm(sums[e], counts[e]) * gradient;
    }
  }
  Require(result.size() > 0, "equal_norm: the update has no gradient of any estimator by itself");
  return result / weights;
}

std::vector<double> RunningNorms(const NamedArrays& state) {
  std::vector<double> norms;
  if (state.size() == 0) return norms;
  const auto sums = state.At("sum").As<double>();
  const auto counts = state.At("count").As<int64_t>();
  for (size_t e = 0; e < sums.size(); ++e) norms.push_back(RunningNorm(sums[e], counts[e]));
  return norms;
}

}  // namespace lopt
