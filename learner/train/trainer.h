#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lopt/base/metrics.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/learner/train/training.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What a training has done so far, for a progress line.
struct TrainProgress {
  int64_t step = 0;        // updates, those before a resume included
  int64_t first_step = 0;  // of these, made before this process began
  int64_t steps = 0;       // the total that the training ends at
  double seconds = 0;      // since the loop of this process began
  double loss = 0;         // of the last batch
};

// Where and how a training runs; nothing here changes its bits.
struct TrainOptions {
  std::string out_dir = {};       // empty: nothing is written
  int threads = 1;                // of this process, at least 1
  bool resume = false;            // go on from out_dir's newest checkpoint
  bool overwrite = false;         // remove the run that is in out_dir
  bool allow_isa_change = false;  // resume on another instruction set, or let ranks differ in it
  std::string version = {};       // of the program, for manifest.json and model.safetensors
  const std::atomic<bool>* stop = nullptr;  // once true: finish the update, save, return
  std::function<void(const TrainProgress&)> on_step = {};  // on rank 0: after each update
  // Called with the name of what a crash may interrupt: "step:<updates>" after an update, and those
  // of CheckpointStore.
  std::function<void(std::string_view)> on_event = {};
  // On rank 0: called with the text of the Error that ends the job. Null: a rank that is a process
  // says it and ends all ranks.
  std::function<void(const char*)> on_failure = {};
  // The ranks that share the work; all call RunTraining with the same config. Null: this process
  // alone.
  Transport* transport = nullptr;
};

// Of ranks other than 0, only `interrupted` has a meaning.
struct TrainResult {
  bool interrupted = false;     // by `stop`, on any rank
  TrainState state = {};        // at the end
  double loss = 0;              // of the last batch of this process
  Metrics judged = {};          // Training::Judge at the end; empty where that is not asked for
  int64_t updates = 0;          // made by this process
  double seconds = 0;           // of this process' loop
  std::string model_path = {};  // "<out_dir>/model.safetensors"; empty if not written
  int64_t classes = 0;          // of the task (TaskParts)
};

// Trains a model: each step rank 0 sends params and model state to all ranks, these evaluate their
// logical workers, each on its part of the batch, in parallel on `threads` threads, and rank 0
// makes the update. Rank 0 writes to out_dir:
//   config.json, manifest.json, throughput.jsonl, status/  as meta-training does
//                        (learner/job/meta_trainer.h)
//   metrics.jsonl, events.out.tfevents.*  a record per metrics_steps updates, and the evaluations;
//                        "step" is the number of updates that the measured params had
//   checkpoints/         learner/run/checkpoint.h, of the arrays params/..., model_state/...,
//                        optimizer/... and the optimizer's weights theta; one at the start, at
//                        every interval and at the end
//   model.safetensors    params/<tensor> (Training::EvalParams) and model_state/<tensor>, when
//                        finished; metadata: config, data (Training::data), version
//
// Throws Error on a bad config; if out_dir holds a run and neither resume nor overwrite is set, or
// holds none and resume is; if it holds a meta-training run or an evaluation; if the resumed
// training's config differs in anything but Training::KeysFree(), or its optimizer's weights or
// instruction set do; if another process runs in out_dir; if something cannot be written; and if
// the ranks differ in version, config or instruction set. After an Error the other ranks of an MPI
// job are to be ended with Transport::Abort. The params after n updates are a function of the
// config (and the files that it names) alone, bit for bit on one instruction set, for any number of
// ranks and threads, interrupted or not.
TrainResult RunTraining(const TrainConfig& config, const TrainOptions& options);

}  // namespace lopt
