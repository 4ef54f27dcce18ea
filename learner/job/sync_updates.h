#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "learner/job/updates.h"
#include "learner/mode.h"

namespace lopt {

// Mode "Sync": an update is the mean over all workers, in their order; with a deadline, over those
// whose gradients have come in time, a quorum of them at least.
class SyncUpdates final : public Updates {
 public:
  SyncUpdates(const SyncOptions& options, int64_t workers, const GradientLearner* learner,
              RunState* state, MessageLoop* loop);

  // Throws Error if a worker sends two gradients for one update.
  void Take(WorkerGradient gradient) override;
  std::optional<UpdateSummary> Make() override;
  // With a deadline: absent_workers.
  void AddMetrics(Metrics* metrics) const override;

 private:
  bool HasDeadline() const { return options_.deadline_seconds > 0; }
  int64_t Absent() const { return static_cast<int64_t>(arrived_.size()) - arrived_count_; }
  void Wait();
  void ReportAbsent();

  SyncOptions options_;
  const GradientLearner* learner_;
  RunState* state_;
  MessageLoop* loop_;
  std::vector<std::optional<WorkerGradient>> arrived_;  // by worker
  int64_t arrived_count_ = 0;
  std::vector<bool> absent_before_;  // by worker, for the log
};

}  // namespace lopt
