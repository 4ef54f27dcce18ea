#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lopt/base/config.h"
#include "lopt/base/environment.h"
#include "lopt/base/metrics.h"
#include "lopt/base/run_lock.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/metrics_log.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/throughput_log.h"
#include "lopt/learner/train/trainer.h"
#include "lopt/learner/train/training.h"

namespace lopt {

// Writes the files of a training (learner/train/trainer.h lists them). Begin first, then the
// others.
class TrainWriter {
 public:
  TrainWriter(const Training& training, const TrainOptions& options);

  // Makes or opens and locks the directory, and writes the files of the start. Returns the state to
  // go on from, that of a checkpoint or a fresh one. Throws Error as RunTraining does.
  TrainState Begin();

  void WriteMetrics(int64_t step, const Metrics& metrics) {
    lock_->RequireNotSilent();
    metrics_->Write(step, metrics);
  }
  void NoteThroughput(int64_t updates, int64_t of_this_process) {
    lock_->RequireNotSilent();
    throughput_->Note(updates, of_this_process);
  }

  // Whether a checkpoint is due by time or by updates.
  bool SaveIsDue(int64_t step) const;
  // Writes a checkpoint, unless the newest is of this step.
  void Save(const TrainState& state);

  // To be called after the last update, before the last checkpoint.
  void FinishThroughput() {
    lock_->RequireHeld();
    throughput_->Finish();
  }
  // The last files, the model's if it is not interrupted; returns that one's path.
  std::string Finish(const TrainState& state, bool interrupted);
  // Notes in the manifest why the training has failed, also while it began; as WriteRunEnd
  // (learner/run/run_end.h) does.
  void Fail(const std::string& error, int64_t step);

 private:
  TrainState Resume(const ArraysCheckpoint& checkpoint) const;
  void WriteManifest(std::string status, int64_t step, std::optional<std::string> error = {}) const;

  const Training& training_;
  TrainOptions options_;
  Config resolved_;
  RunDirectory directory_;
  CheckpointStore store_;
  std::optional<RunLock> lock_;
  std::optional<MetricsLog> metrics_;
  std::optional<ThroughputLog> throughput_;
  bool begun_ = false;       // the directory holds this training, and no other's run
  int64_t saved_step_ = -1;  // of the newest checkpoint
  SteadyClock::time_point saved_at_ = SteadyClock::now();
};

}  // namespace lopt
