#include "lopt/evaluation/run_result.h"

#include <algorithm>
#include <cmath>

namespace lopt {

double Mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double FinalMean(std::span<const float> curve, int64_t steps) {
  const int64_t count = std::min(steps, kFinalSteps);
  return Mean(curve.subspan(static_cast<size_t>(steps - count), static_cast<size_t>(count)));
}

bool BlewUp(std::span<const float> losses) {
  constexpr double kFactor = 5;
  constexpr double kLeast = 1e-3;
  const int64_t size = std::max(kFinalSteps, std::ssize(losses) / kSmoothedPart);
  const int64_t blocks = std::ssize(losses) / size;
  if (blocks < 3) return false;
  std::vector<double> means;
  for (int64_t b = blocks; b > 0; --b) {
    means.push_back(
        Mean(losses.last(static_cast<size_t>(b * size)).first(static_cast<size_t>(size))));
  }
  const double least = std::max(std::ranges::min(means), kLeast * means.front());
  const auto is_high = [&](double mean) { return mean > kFactor * least; };
  return means.front() > 0 &&
         std::ranges::all_of(losses, [](float x) { return std::isfinite(x); }) &&
         is_high(means[means.size() - 1]) && is_high(means[means.size() - 2]);
}

bool RunResult::Diverged(size_t i) const {
  const auto finite = [](float loss) { return std::isfinite(loss); };
  return !std::isfinite(final_train_loss[i]) || !std::isfinite(mean_train_loss[i]) ||
         !std::isfinite(test_loss[i]) ||
         (i + 1 == steps.size() && !std::all_of(train_loss.begin(), train_loss.end(), finite));
}

}  // namespace lopt
