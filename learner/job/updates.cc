#include "lopt/learner/job/updates.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace lopt {

UpdateSummary UpdateTheta(const GradientLearner& learner, std::vector<WorkerGradient> gradients,
                          std::span<const double> weights, RunState* state) {
  std::vector<WorkerWindows> windows;
  std::vector<int64_t> workers;
  std::vector<AggregatedGradient> to_put;
  for (WorkerGradient& gradient : gradients) {
    workers.push_back(gradient.worker);
    windows.push_back(WindowsOf(gradient));
    to_put.push_back(std::move(gradient.gradient));
  }
  UpdateSummary summary;
  state->learner =
      weights.empty()
          ? learner.Update(std::move(state->learner), to_put, &summary, workers)
          : learner.UpdateWeighted(std::move(state->learner), to_put, weights, &summary, workers);
  for (size_t i = 0; i < to_put.size(); ++i) {
    state->ledger.Account(summary.skipped ? Outcome::kNonFinite : Outcome::kUsed, windows[i],
                          to_put[i]);
  }
  for (size_t e = 0; e < state->totals.size(); ++e) {
    state->totals[e] += summary.estimators[e].counts;
  }
  if (summary.skipped && state->learner.skipped_updates == 1) {
    spdlog::warn(
        "the gradient of outer step {} is not finite, so theta stays as it is; this and later "
        "ones are counted in the metric skipped_updates",
        summary.outer_step);
  }
  return summary;
}

}  // namespace lopt
