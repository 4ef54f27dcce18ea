#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/key.h"
#include "base/layout.h"
#include "learner/gradient_learner.h"
#include "learner/worker.h"

namespace lopt {

// Everything of a meta-training run that lives between two updates.
struct Checkpoint {
  Config config;    // resolved; of MetaTrainConfig
  std::string isa;  // instruction set that computed it
  Key run_key;
  Layout theta;  // of learner.theta
  LearnerState learner;
  std::vector<WorkerState> workers;  // by logical worker
  std::vector<StepCounts> totals;    // by estimator, all workers, since the start of the run
};

// Which checkpoints stay when a new one is complete: the newest `keep_last` >= 1 and, where
// `keep_every` > 0, those whose step is a multiple of it.
struct CheckpointRetention {
  int64_t keep_last = 3;
  int64_t keep_every = 0;
};

// A checkpoint is a directory "step-<outer step, 8 digits>":
//   learner.safetensors        theta/<tensor>, theta_opt/<row>, counters; metadata: config, isa
//   worker-<w, 5 digits>.safetensors   windows, <estimator>/<array>
//   manifest.json              format, step, and for each file its size and CRC-32 (zlib's)
// It is written as "tmp-step-<...>": the files, then the manifest, each flushed to disk, then the
// directory, which is renamed into place at last. So a directory named step-... is complete unless
// something damaged it later; the sizes and checksums find that.

// Reads one checkpoint directory. Throws Error that names the directory, the file and what is
// wrong: a temporary name, no manifest, a missing file, another size or checksum.
Checkpoint ReadCheckpoint(const std::string& directory);

// The checkpoints of one run, in one directory.
class CheckpointStore {
 public:
  // `on_event`, where given, is called with "checkpoint:<step>:<what>" before each part of a write:
  // begin, worker:<w>, learner, manifest, rename, retention, and end after the last.
  CheckpointStore(std::string directory, CheckpointRetention retention,
                  std::function<void(std::string_view)> on_event = {});

  // Writes and then applies the retention. Throws Error (a full disk, no permission) and leaves the
  // older checkpoints as they are. Throws Error as well if there is a checkpoint of this step.
  void Write(const Checkpoint& checkpoint) const;
  // Removes, with a line in the log, what killed writes left behind.
  void RemoveUnfinished() const;

  // Steps of the checkpoints there are, ascending.
  std::vector<int64_t> Steps() const;
  std::string Path(int64_t step) const;
  // The newest checkpoint, none if there is none. Throws Error if it is damaged; the message names
  // the older ones that are not. Nothing is fallen back to.
  std::optional<Checkpoint> ReadNewest() const;

 private:
  void Event(int64_t step, std::string_view what) const;
  void ApplyRetention() const;

  std::string directory_;
  CheckpointRetention retention_;
  std::function<void(std::string_view)> on_event_;
};

}  // namespace lopt
