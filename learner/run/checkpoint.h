#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

// What is read of the workers' states: all of them, or only how many windows each has run. All
// files are checked in either case.
enum class WorkerStates { kAll, kWindows };

// Reads one checkpoint directory. Throws Error that names the directory, the file and what is
// wrong: a temporary name, no manifest, a missing file, another size or checksum.
Checkpoint ReadCheckpoint(const std::string& directory, WorkerStates states = WorkerStates::kAll);
// Reads the states of workers [first, first + count) alone, one after the other.
std::vector<WorkerState> ReadWorkers(const std::string& directory, int64_t first, int64_t count,
                                     size_t estimators);

// What learner.safetensors of a checkpoint holds.
ArrayFile LearnerToFile(const Checkpoint& checkpoint);

}  // namespace lopt
