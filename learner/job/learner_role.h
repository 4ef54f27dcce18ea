#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_directory.h"
#include "evaluation/held_out.h"
#include "learner/experiment.h"
#include "learner/job/background.h"
#include "learner/job/gradient_buffer.h"
#include "learner/job/message_loop.h"
#include "learner/job/meta_trainer.h"
#include "learner/job/placement.h"
#include "learner/run/best_theta.h"
#include "learner/run/checkpoint.h"
#include "learner/run/metrics_log.h"
#include "learner/run/run_directory.h"
#include "learner/run/throughput_log.h"
#include "learner/run/window_journal.h"

namespace lopt {

// The learner of a job, on rank 0: starts and resumes the run, hands out weights, takes gradients,
// updates theta, and writes everything but the workers' part of checkpoints.
class LearnerRole {
 public:
  // *experiment is null until the experiment has been made.
  LearnerRole(const MetaTrainConfig& config, const MetaTrainerOptions& options,
              const Experiment* const* experiment, Transport* transport, MessageLoop* loop,
              Background* background);

  // Takes a message of a kind that goes from rank to learner.
  void Handle(Message message);
  // To be called once, when the loop runs. Returns when all ranks were told that the run has ended.
  MetaTrainResult Run();

  bool saving() const { return saving_; }

 private:
  using Clock = std::chrono::steady_clock;

  // What the learner knows of one rank.
  struct Rank {
    WorkerBlock block;
    std::optional<Hello> hello;
    bool ready = false;
    int64_t weights_sent = -1;  // outer step
    int64_t computing = -1;     // outer step of the weights it computes with; -1: nothing
    std::optional<std::vector<SavedWorker>> saved;
    std::vector<WorkerGradient> deferred;  // came after `saved`
  };

  bool Writes() const { return !options_.out_dir.empty(); }
  bool Async() const { return config_.mode == "async"; }
  bool HasDeadline() const { return config_.deadline_seconds > 0; }
  bool StopAsked() const { return stop_asked_ || (options_.stop != nullptr && *options_.stop); }
  void Event(std::string_view what) const;
  std::string NameOf(int rank) const;
  void Broadcast(int kind, const std::vector<std::byte>& bytes);

  void CompareRanks();
  void ReportPlacement() const;
  void StartFresh(const std::string& init_theta);
  void Prepare();
  void GoOnFrom(Checkpoint checkpoint);
  void SendStates(const std::vector<WorkerState>& workers);
  void OpenJournal(int64_t position);
  std::span<const int64_t> WindowsIn(const WorkerBlock& block) const;
  Config LearnedOptimizerConfig() const;
  void WriteManifest(std::string status, std::optional<std::string> error = {}) const;

  MetaTrainResult Loop();
  void InBackground(std::function<void()> work);
  // Judges theta if that is due.
  void EvaluateTheta();
  void WriteTheta(const std::string& path) const;
  UpdateSummary SyncUpdate();
  std::optional<UpdateSummary> AsyncUpdate();
  void HandOutWeights();
  void NoteStarted(Rank* rank);
  void TakeGradients(int from, std::vector<WorkerGradient> gradients);
  void TakeGradient(WorkerGradient gradient);
  void AccountUpdate(const UpdateSummary& summary, std::span<const WorkerWindows> windows,
                     std::span<const AggregatedGradient> gradients);
  void ReportAbsent(int64_t arrived);
  void Report(const UpdateSummary& summary, const MetaTrainResult& result, int64_t inner_steps);

  bool SaveIsDue() const;
  // Has all workers say how far they are, and write or send their states.
  void CollectStates(SaveRequest request);
  void Save(bool last);
  std::vector<CheckpointFile> FilesOfWorkers(const std::string& directory);
  void Finish(MetaTrainResult* result);

  MetaTrainConfig config_;
  MetaTrainerOptions options_;
  Config resolved_;
  const Experiment* const* experiment_;
  Transport* transport_;
  MessageLoop* loop_;
  Background* background_;
  RunDirectory directory_;
  std::optional<RunLock> lock_;
  CheckpointStore store_;
  std::optional<MetricsLog> metrics_;
  std::optional<ThroughputLog> throughput_;
  std::optional<WindowJournal> journal_;
  std::optional<HeldOutEvaluation> held_out_;  // if eval_every is set
  std::optional<BestTheta> best_;
  HeldOutResult evaluation_;  // of the present theta; without metrics if it was not judged
  std::string init_theta_;

  std::vector<Rank> ranks_;
  std::vector<int64_t> windows_;  // by worker, started so far
  LearnerState learner_;
  std::vector<StepCounts> totals_;
  Ledger ledger_;
  std::vector<std::optional<WorkerGradient>> arrived_;  // by worker; mode "sync"
  int64_t arrived_count_ = 0;
  std::vector<bool> absent_before_;       // by worker, for the log
  std::optional<GradientBuffer> buffer_;  // mode "async"
  bool stop_asked_ = false;
  bool saving_ = false;
  bool last_save_ = false;   // asked for: the workers compute nothing more
  int64_t saved_step_ = -1;  // outer step of the newest checkpoint
  Clock::time_point saved_at_ = Clock::now();
};

}  // namespace lopt
