#include "lopt/mlp_lopt_step.h"

#include <algorithm>
#include <cmath>

namespace lopt {

MlpLoptStep::MlpLoptStep(const MLPLOptOptions& options, const StepInfo& info)
    : time_(static_cast<float>(info.step)),
      exp_mult_(static_cast<float>(options.exp_mult)),
      normalizer_epsilon_(static_cast<float>(options.normalizer_epsilon)),
      step_mult_(static_cast<float>(options.step_mult * ScheduleFactor(options.schedule, info))),
      relative_step_(options.relative_step),
      relative_to_parameter_(options.relative_to_parameter) {
  if (relative_step_) {
    const double decay = MLPLOpt::kDecays.back();
    correction_ = 1 - std::pow(decay, static_cast<double>(info.step + 1));
  }
  if (!options.progress_features) return;
  const auto steps = static_cast<double>(info.num_steps);
  progress_ = {static_cast<float>(static_cast<double>(info.step) / steps),
               static_cast<float>(std::log(steps) / 10)};
  progress_size_ = progress_.size();
}

float MlpLoptStep::Multiplier(int64_t size, const float* sums) const {
  double multiplier = step_mult_;
  if (relative_step_) {
    const double gradient = std::sqrt(double{sums[0]}) * correction_;
    const double slowest = std::sqrt(double{sums[MLPLOpt::kNormalized - 1]});
    if (gradient == 0) return 0;
    if (gradient < slowest) multiplier *= gradient / slowest;
  }
  if (relative_to_parameter_) {
    const double rms = std::sqrt(double{sums[1]} / static_cast<double>(size));
    multiplier *= std::max(MLPLOpt::kParameterFloor, rms);
  }
  return static_cast<float>(multiplier);
}

}  // namespace lopt
