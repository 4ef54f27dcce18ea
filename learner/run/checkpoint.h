#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/run/ledger.h"
#include "lopt/learner/run/run_logs.h"
#include "lopt/learner/worker.h"

namespace lopt {

// Everything of a meta-training run that lives between two updates.
struct Checkpoint {
  Config config;                         // resolved; of MetaTrainConfig
  std::string isa;                       // instruction set that computed it
  std::string device = "cpu";            // model of what its windows ran on
  std::optional<std::string> data = {};  // Experiment::data; none: written before it was kept
  // The same with what the held-out tasks read; none: there was no held-out evaluation.
  std::optional<std::string> held_out_data = {};
  Key run_key;
  Layout theta;  // of learner.theta
  LearnerState learner;
  std::vector<WorkerState> workers;  // by logical worker
  std::vector<StepCounts> totals;    // by estimator, all workers, since the start of the run
  Ledger ledger = {};                // of all inner steps since the start of the run
  int64_t journal_position = 0;      // records of the window journal that the ledger has seen
  LogState logs = {};                // of the run at the time
};

// One file of a checkpoint as its manifest lists it.
struct CheckpointFile {
  std::string name = {};
  uint64_t bytes = 0;
  uint32_t crc32 = 0;  // zlib's

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("bytes", bytes);
    visit("crc32", crc32);
  }
};

// Which checkpoints stay when a new one is complete: the newest `keep_last` >= 1 and, where
// `keep_every` > 0, those whose step is a multiple of it.
struct CheckpointRetention {
  int64_t keep_last = 3;
  int64_t keep_every = 0;
};

// A checkpoint is a directory "step-<outer step, 8 digits>":
//   learner.safetensors        theta/<tensor>, theta_opt/<row>, norms/..., ledger/..., counters;
//                              metadata: config, isa, data, held_out_data where theta is judged,
//                              and device where that is not the processor
//   workers-<...>.safetensors  learner/run/worker_files.h
//   manifest.json              format, step, state of the run's logs, and for each file its size
//                              and CRC-32 (zlib's)
// It is written as "tmp-step-<...>": the files, then the manifest, each flushed to disk, then the
// directory, which is renamed into place at last. So a directory named step-... is complete unless
// something damaged it later; the sizes and checksums find that.

// What is in a checkpoint of a run that keeps everything in one file of arrays:
// state.safetensors in place of those of learner and workers.
struct ArraysCheckpoint {
  int64_t step = 0;
  ArrayFile file;
  LogState logs = {};  // of the run at the time
};

// What is read of the workers' states: all of them, or only how many windows each has run. All
// files are checked in either case.
enum class WorkerStates { kAll, kWindows };

// Reads one checkpoint directory. Throws Error that names the directory, the file and what is
// wrong: a temporary name, no manifest, a missing file, another size or checksum.
Checkpoint ReadCheckpoint(const std::string& directory, WorkerStates states = WorkerStates::kAll);
// Reads the states of workers [first, first + count) alone, one after the other.
std::vector<WorkerState> ReadWorkers(const std::string& directory, int64_t first, int64_t count,
                                     size_t estimators);

// Writes one file into a checkpoint that has begun, flushed to disk.
CheckpointFile WriteCheckpointFile(const std::string& directory, const std::string& name,
                                   std::span<const std::byte> bytes);

struct CheckpointManifest;

// The checkpoints of one run, in one directory.
class CheckpointStore {
 public:
  // `on_event`, where given, is called with "checkpoint:<step>:<what>" before each part of a write:
  // begin, workers:<first>, learner, manifest, rename, retention, and end after the last.
  CheckpointStore(std::string directory, CheckpointRetention retention,
                  std::function<void(std::string_view)> on_event = {});

  // Writes and then applies the retention. Throws Error (a full disk, no permission) and leaves the
  // older checkpoints as they are. Throws Error as well if there is a checkpoint of this step.
  void Write(const Checkpoint& checkpoint) const;
  // The same in parts, for workers whose states are elsewhere: Begin makes the temporary directory
  // and returns its path; the workers' files are written into it, in any order, by whoever has them
  // (who calls `on_event`); Commit writes the rest, but for checkpoint.workers, which it does not
  // look at. Throws Error if a worker's file is not there or is not as described. Discard removes
  // what there is, as far as that works.
  std::string Begin(int64_t step) const;
  void Commit(const Checkpoint& checkpoint, std::span<const CheckpointFile> workers) const;
  void Discard(int64_t step) const;
  // To be called before a run goes on, for a writer may have been killed anywhere: removes, with a
  // line in the log, what unfinished writes left behind, and flushes the names of the checkpoints,
  // or a crash may take one on which the run has gone on.
  void Settle() const;
  // The same for a run that has no workers and no learner: the checkpoint is one file of arrays.
  void Write(const ArraysCheckpoint& checkpoint) const;
  // The newest of these, none if there is none.
  std::optional<ArraysCheckpoint> ReadNewestArrays() const;

  // Steps of the checkpoints there are, ascending.
  std::vector<int64_t> Steps() const;
  std::string Path(int64_t step) const;
  // Where the checkpoint is until it is complete.
  std::string TemporaryPath(int64_t step) const;
  // The newest checkpoint, none if there is none.
  std::optional<Checkpoint> ReadNewest(WorkerStates states = WorkerStates::kAll) const;
  // Throws Error if there is none of this step, and lists the steps there are; or if it is damaged,
  // and names those that are not. Nothing is fallen back to. As ReadNewest does.
  Checkpoint Read(int64_t step, WorkerStates states = WorkerStates::kAll) const;
  // Removes the checkpoints after a step, with a line in the log.
  void RemoveAfter(int64_t step) const;

 private:
  void Event(int64_t step, std::string_view what) const;
  void Complete(const CheckpointManifest& manifest) const;
  void RemoveStep(int64_t step) const;
  void ApplyRetention() const;

  std::string directory_;
  CheckpointRetention retention_;
  std::function<void(std::string_view)> on_event_;
};

}  // namespace lopt
