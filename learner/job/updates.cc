#include "lopt/learner/job/updates.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace lopt {
namespace {

// The numbers that one thread adds up in some 50 us: more of them are worth waking others. The pool
// that is made for them is none of base/environment.h's, since nothing that a simulation orders
// depends on it: neither a bit, nor a message, nor a file.
constexpr int64_t kNumbersOfOneThread = 1 << 16;

int64_t NumbersIn(std::span<const WorkerGradient> gradients) {
  int64_t numbers = 0;
  const auto add = [&](const auto& from) {
    numbers += from.gradient.size() + from.partial.sum.size();
  };
  for (const WorkerGradient& gradient : gradients) {
    add(gradient.gradient);
    for (const EstimatorReport& report : gradient.gradient.estimators) add(report);
  }
  return numbers;
}

}  // namespace

UpdateSummary Updates::UpdateOnThreads(const GradientLearner& learner,
                                       std::vector<WorkerGradient> gradients,
                                       std::span<const double> weights, RunState* state) {
  if (threads_ == 1 || NumbersIn(gradients) <= kNumbersOfOneThread) {
    return UpdateTheta(learner, std::move(gradients), weights, state);
  }
  if (!pool_) pool_.emplace(threads_);
  UpdateSummary summary;
  pool_->Run([&] { summary = UpdateTheta(learner, std::move(gradients), weights, state); });
  return summary;
}

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
