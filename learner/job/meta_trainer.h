#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/metrics.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/run/ledger.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {

class Transport;

struct Experiment;  // learner/experiment.h

// What a run has done so far, for a progress line.
struct MetaTrainProgress {
  int64_t updates = 0;        // of theta, those before a resume included
  int64_t first_updates = 0;  // of these, done before this process began
  int64_t meta_steps = 0;     // the total that the run ends at
  double seconds = 0;         // since the loop of this process began
  int64_t inner_steps = 0;    // in this process, all estimators, both of a pair counted
  // Of the last update; its estimators in the order of estimator_names.
  const UpdateSummary* summary = nullptr;
  const std::vector<std::string>* estimator_names = nullptr;  // "<index>_<task>"
};

// Where and how a run runs; nothing here changes its theta.
struct MetaTrainerOptions {
  std::string out_dir = {};  // empty: nothing is written
  int threads = 1;           // of this process, at least 1
  bool resume = false;       // go on from out_dir's newest checkpoint
  // With resume: go on from the checkpoint of this step instead. What came after it (checkpoints,
  // logs, final and best theta) is removed, its windows count as lost.
  std::optional<int64_t> from = {};
  bool overwrite = false;  // remove the run that is in out_dir
  // Resume on another instruction set or device, or let ranks differ in them.
  bool allow_isa_change = false;
  // With the device "cuda": the numbers of the GPUs that the ranks of a host take in turn; empty:
  // all.
  std::vector<int> gpus = {};
  std::string version = {};  // of the program, for manifest.json and theta.safetensors
  const std::atomic<bool>* stop = nullptr;  // once true: finish the update, save, return
  std::function<void(const MetaTrainProgress&)> on_step = {};  // after each update
  // On rank 0: called with each record of metrics.jsonl, also where no file is written.
  std::function<void(int64_t step, const Metrics&)> on_metrics = {};
  // On rank 0: called once, in the background, with what is run, before any rank begins.
  std::function<void(const Experiment&)> on_experiment = {};
  // Called with the name of what a crash may interrupt: "resume" before a run
  // is read, "step:<updates>" after an update, "theta" and "finish" before the files written at the
  // end, and those of CheckpointStore.
  std::function<void(std::string_view)> on_event = {};
  // On rank 0: called with the text of the Error that ends the job, before the work that runs in
  // the background is waited for. Null: a rank that is a process says it and ends all ranks.
  std::function<void(const char*)> on_failure = {};
  // The ranks that share the work (RunJob has them); all call RunMetaTraining with the same config,
  // once in a job. Null: this process alone.
  Transport* transport = nullptr;
  bool learner_only = false;  // rank 0 computes no workers, and opens no device
};

// Of ranks other than 0, only `interrupted` has a meaning.
struct MetaTrainResult {
  bool interrupted = false;                  // by `stop`, on any rank
  LearnerState learner;                      // at the end
  ThetaFile theta;                           // of `learner`
  std::vector<std::string> estimator_names;  // "<index>_<task>", in the order of the config
  std::vector<StepCounts> totals;            // by estimator, since the start of the run
  Ledger ledger;                             // of all inner steps since the start of the run
  UpdateSummary last;      // the last update of this process; outer_step -1 if none was made
  int64_t updates = 0;     // made by this process
  double seconds = 0;      // of this process' loop
  std::string theta_path;  // "<out_dir>/theta.safetensors"; empty if not written
};

// Runs an experiment: its logical workers in blocks on the ranks, each block in parallel on
// `threads` threads, the learner on rank 0. Rank 0 writes to out_dir:
//   config.json        resolved: every key with its value
//   manifest.json      status, version, isa, device, seed, updates (learner/run/run_directory.h)
//   metrics.jsonl, events.out.tfevents.*  a record per metrics_steps updates; "step" is the number
//                      of updates that the measured theta had
//   throughput.jsonl   learner/run/throughput_log.h
//   checkpoints/       learner/run/checkpoint.h; one at the start, at every interval and at the end
//   theta.safetensors  lopt/theta_file.h, when finished
//   theta_best.safetensors, best.json  learner/run/best_theta.h, if eval_every is set
//   windows.bin        learner/run/window_journal.h
// and every rank r
//   status/rank-<r>.json  learner/run/status_file.h
//   its workers' files of a checkpoint, unless gather_checkpoints is set
//
// Throws Error on a bad config; if out_dir holds a run and neither resume nor overwrite is set, or
// holds none and resume is; if it holds a training run or an evaluation; if the resumed run's
// config differs in anything but KeysFreeOnResume(), or its instruction set or device does; if
// another process runs in out_dir; if something cannot be written. Throws Error as well if the
// ranks differ in version, config or instruction set, or those that compute in device. In RunJob an
// Error ends all ranks; elsewhere they are to be ended with Transport::Abort. theta after n updates
// is a function of the config (and the file init_theta) alone, bit for bit on one instruction set
// and kind of device, for any number of ranks and threads; not so with mode "Async" or a deadline.
MetaTrainResult RunMetaTraining(const MetaTrainConfig& config, const MetaTrainerOptions& options);

}  // namespace lopt
