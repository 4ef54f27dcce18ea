#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/metrics.h"
#include "lopt/base/run_lock.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/ranks.h"
#include "lopt/learner/job/run_state.h"
#include "lopt/learner/job/updates.h"
#include "lopt/learner/run/best_theta.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/metrics_log.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/run_logs.h"
#include "lopt/learner/run/throughput_log.h"
#include "lopt/learner/run/window_journal.h"

namespace lopt {

// Writes all files of a run (learner/job/meta_trainer.h lists them) but those of its workers.
// To be called in this order: Resume, where there is something to resume, or Create; Open; then the
// others.
class RunWriter {
 public:
  // Files are written in `background`, in its order.
  RunWriter(const Experiment& experiment, const MetaTrainerOptions& options,
            Background* background);

  // What the windows of the run run on, as Ranks::device; to be called before the others.
  void KnowDevice(const std::string& device) { device_ = device; }
  // Makes and locks the directory, and removes the run that is in it where that is asked for.
  // Throws Error if it is not and a run is there, also one that began since the start.
  void Create();
  // Locks the directory, cleans up behind a process that was killed, and reads the newest
  // checkpoint but for the workers' states, none if there is none yet. Throws Error if it does not
  // fit the experiment.
  std::optional<Checkpoint> Resume();
  // Opens all files and writes those of the start, after a checkpoint or from the beginning. Logs
  // are cut to the checkpoint, and a best theta of later updates is removed: those may never come
  // again. `windows`, by worker, are those of the state. The ledger learns of windows that were
  // rolled back.
  void Open(const std::optional<Checkpoint>& checkpoint, std::span<const int64_t> windows,
            RunState* state);

  WindowJournal* journal() { return &*journal_; }
  // Throws Error if this process may have lost the directory's lock and has; to be called before
  // the journal is written.
  void RequireLock();

  void WriteMetrics(int64_t step, const Metrics& metrics);
  void WritePictures(int64_t step, const std::map<std::string, Pictures>& pictures);
  void NoteThroughput(int64_t updates, int64_t inner_steps);
  // To be called after the last update, before the last checkpoint.
  void FinishThroughput();
  // Keeps theta if this held-out loss is the lowest so far.
  void OfferBest(const LearnerState& learner, double loss);

  // Whether a checkpoint is due by time or by updates, and none is being written.
  bool SaveIsDue(int64_t step) const;
  // The directory of the newest checkpoint.
  std::string newest() const { return store_.Path(saved_step_); }
  // Whether the newest checkpoint is of this step.
  bool Saved(int64_t step) const { return saved_step_ == step; }
  // Begins a checkpoint: the ranks write their workers' files when they come to it, then the rest
  // is written in the background. What a worker did after theta's step is counted as lost in it. If
  // that fails the older checkpoints are as they were.
  void Save(const RunState& state, const Updates& updates, Ranks* ranks);
  // Whether a checkpoint is being written.
  bool saving() const { return saving_ != nullptr; }

  // The last files of a run, theta's if it is not interrupted; returns that one's path.
  std::string Finish(const LearnerState& learner, bool interrupted);
  // Notes in the manifest why the run has failed; as WriteRunEnd (learner/run/run_end.h) does.
  void Fail(const std::string& error, int64_t updates);
  // The same for a run that was interrupted and loses what came after its newest checkpoint.
  void Stop();

 private:
  // A file or directory of the run, to write to it now: throws Error as RequireLock does.
  template <class File>
  File& Writable(File& file) {
    RequireLock();
    return file;
  }
  void RemoveAfter(int64_t step);
  void WriteGraphs();
  void Event(const char* what) const;
  // Checkpoint::held_out_data, once the held-out evaluation is made.
  std::optional<std::string> HeldOutData() const;
  // Whether the run that the checkpoint is of is judged on the tasks of this one's config.
  bool SameEvalTasks(const Checkpoint& checkpoint) const;
  void CheckFits(const Checkpoint& checkpoint) const;
  void WriteManifest(std::string status, int64_t updates, std::optional<std::string> error = {});
  // `chosen_on`: see ThetaFile.
  void WriteTheta(const std::string& path, const LearnerState& learner,
                  const std::string& chosen_on = {}) const;
  // Reads it again with every reader that the program has, and warns of those for which its golden
  // steps come out otherwise: no training is lost to a check.
  void CheckTheta(const std::string& path) const;
  void ForgetOldWindows();
  void End(const std::string& status, int64_t updates,
           const std::optional<std::string>& error = {});
  void Commit(const std::shared_ptr<const Checkpoint>& checkpoint, std::vector<SavedFile> saved);

  const Experiment& experiment_;
  const MetaTrainConfig& config_;
  MetaTrainerOptions options_;
  Background* background_;
  RunDirectory directory_;
  std::optional<RunLock> lock_;
  CheckpointStore store_;
  std::string device_;
  // HeldOutData of a run that goes on without a held-out evaluation: a later resume may make one.
  std::optional<std::string> earlier_held_out_data_;
  std::optional<WindowJournal> journal_;
  std::map<int64_t, int64_t> journal_positions_;  // by step, of checkpoints of this process
  std::optional<MetricsLog> metrics_;
  std::optional<ThroughputLog> throughput_;
  std::optional<BestTheta> best_;
  std::shared_ptr<Checkpoint> saving_;                     // is being written
  int64_t saved_step_ = -1;                                // of the newest checkpoint
  SteadyClock::time_point saved_at_ = SteadyClock::now();  // when it was complete
};

}  // namespace lopt
