#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lopt/learner/job/updates.h"
#include "lopt/learner/mode.h"

namespace lopt {

// Mode "Sync": an update is the mean over all workers, in their order; with a deadline, over those
// whose gradients have come in time, a quorum of them at least.
class SyncUpdates final : public Updates {
 public:
  // `threads` as Updates has them.
  SyncUpdates(const SyncOptions& options, int64_t workers, const GradientLearner* learner,
              RunState* state, MessageLoop* loop, int threads);

  // Throws Error if a worker sends two gradients for one update.
  bool Take(WorkerGradient gradient) override;
  std::optional<UpdateSummary> Make() override;
  // With a deadline: absent_workers.
  void AddMetrics(Metrics* metrics) const override;

 private:
  bool HasDeadline() const { return options_.deadline_seconds > 0; }
  bool AllArrived() const { return arrived_count_ == static_cast<int64_t>(arrived_.size()); }
  void Wait();
  void ReportAbsent();

  SyncOptions options_;
  const GradientLearner* learner_;
  RunState* state_;
  MessageLoop* loop_;
  std::vector<std::optional<WorkerGradient>> arrived_;  // by worker
  int64_t arrived_count_ = 0;
  int64_t absent_ = 0;               // from the last update
  std::vector<bool> absent_before_;  // by worker, for the log
};

}  // namespace lopt
