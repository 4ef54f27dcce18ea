#include "lopt/learner/job/async_updates.h"

#include <utility>
#include <vector>

namespace lopt {

AsyncUpdates::AsyncUpdates(const AsyncOptions& options, const GradientLearner* learner,
                           RunState* state, MessageLoop* loop, std::function<bool()> stop,
                           int threads)
    : Updates(threads),
      learner_(learner),
      state_(state),
      loop_(loop),
      stop_(std::move(stop)),
      buffer_(options) {}

bool AsyncUpdates::Take(WorkerGradient gradient) {
  const WorkerWindows windows = WindowsOf(gradient);
  const AggregatedGradient counts = {.counts = gradient.gradient.counts,
                                     .estimators = gradient.gradient.estimators};
  if (!buffer_.Put(state_->learner.outer_step, std::move(gradient))) {
    state_->ledger.Account(Outcome::kStale, windows, counts);
  }
  return !buffer_.Ready();
}

std::optional<UpdateSummary> AsyncUpdates::Make() {
  loop_->RunUntil([this] { return buffer_.Ready() || stop_(); });
  if (!buffer_.Ready()) {
    return std::nullopt;
  }
  std::vector<WorkerGradient> gradients = buffer_.Gather();
  std::vector<double> weights;
  for (const WorkerGradient& gradient : gradients) {
    weights.push_back(buffer_.Weight(state_->learner.outer_step, gradient));
  }
  const UpdateSummary summary = UpdateOnThreads(*learner_, std::move(gradients), weights, state_);
  for (const WorkerGradient& pruned : buffer_.Prune(state_->learner.outer_step)) {
    state_->ledger.Account(Outcome::kStale, WindowsOf(pruned), pruned.gradient);
  }
  return summary;
}

void AsyncUpdates::AccountUnused(Ledger* ledger) const {
  for (const WorkerGradient& unused : buffer_.gradients()) {
    ledger->Account(Outcome::kLost, WindowsOf(unused), unused.gradient);
  }
}

}  // namespace lopt
