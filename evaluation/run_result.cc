#include "evaluation/run_result.h"

#include <algorithm>
#include <cmath>

namespace lopt {

double FinalMean(std::span<const float> curve, int64_t steps) {
  const int64_t count = std::min(steps, kFinalSteps);
  double sum = 0;
  for (const float value : curve.subspan(static_cast<size_t>(steps - count), count)) sum += value;
  return sum / static_cast<double>(count);
}

bool RunResult::Diverged(size_t i) const {
  const auto finite = [](float loss) { return std::isfinite(loss); };
  return !std::isfinite(final_train_loss[i]) || !std::isfinite(mean_train_loss[i]) ||
         !std::isfinite(test_loss[i]) ||
         (i + 1 == steps.size() && !std::all_of(train_loss.begin(), train_loss.end(), finite));
}

}  // namespace lopt
