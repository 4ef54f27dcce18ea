#include "lopt/learner/job/sync_updates.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {

SyncUpdates::SyncUpdates(const SyncOptions& options, int64_t workers,
                         const GradientLearner* learner, RunState* state, MessageLoop* loop,
                         int threads)
    : Updates(threads),
      options_(options),
      learner_(learner),
      state_(state),
      loop_(loop),
      arrived_(static_cast<size_t>(workers)),
      absent_before_(static_cast<size_t>(workers)) {
  CheckOptions("Sync", options);
}

bool SyncUpdates::Take(WorkerGradient gradient) {
  const int64_t step = state_->learner.outer_step;
  if (gradient.gradient.outer_step < step) {
    state_->ledger.Account(Outcome::kLate, WindowsOf(gradient), gradient.gradient);
    return true;
  }
  auto& slot = arrived_[static_cast<size_t>(gradient.worker)];
  Require(!slot.has_value(), "worker {} sent two gradients of outer step {}", gradient.worker,
          step);
  slot = std::move(gradient);
  ++arrived_count_;
  return false;
}

std::optional<UpdateSummary> SyncUpdates::Make() {
  Wait();
  absent_ = static_cast<int64_t>(arrived_.size()) - arrived_count_;
  std::vector<WorkerGradient> gradients;
  for (auto& slot : arrived_) {
    if (slot) {
      gradients.push_back(std::move(*slot));
      slot.reset();
    }
  }
  arrived_count_ = 0;
  return UpdateOnThreads(*learner_, std::move(gradients), {}, state_);
}

void SyncUpdates::Wait() {
  if (!HasDeadline()) {
    loop_->RunUntil([this] { return AllArrived(); });
    return;
  }
  const auto deadline =
      SteadyClock::now() + std::chrono::duration<double>(options_.deadline_seconds);
  loop_->RunUntil(
      [&] {
        return AllArrived() ||
               (arrived_count_ >= options_.quorum && SteadyClock::now() >= deadline);
      },
      std::chrono::milliseconds(1));
  ReportAbsent();
}

// The first time that a worker is left out, it is named.
void SyncUpdates::ReportAbsent() {
  std::vector<size_t> absent;
  for (size_t w = 0; w < arrived_.size(); ++w) {
    if (!arrived_[w] && !absent_before_[w]) {
      absent_before_[w] = true;
      absent.push_back(w);
    }
  }
  if (!absent.empty()) {
    spdlog::warn(
        "update {} goes ahead with {} of {} workers; left out for the first time: {}. What is left "
        "out is counted in the metrics late_steps/... and absent_workers",
        state_->learner.outer_step, arrived_count_, arrived_.size(), fmt::join(absent, ", "));
  }
}

void SyncUpdates::AddMetrics(Metrics* metrics) const {
  if (HasDeadline()) {
    (*metrics)["absent_workers"] = static_cast<double>(absent_);
  }
}

}  // namespace lopt
