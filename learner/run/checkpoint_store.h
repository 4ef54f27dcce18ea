#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/safetensors.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/run_logs.h"

namespace lopt {

// Which checkpoints stay when a new one is complete: the newest `keep_last` >= 1 and, where
// `keep_every` > 0, the first one at or after each multiple of it.
struct CheckpointRetention {
  int64_t keep_last = 3;
  int64_t keep_every = 0;
};

// What is in a checkpoint of a run that keeps everything in one file of arrays:
// state.safetensors in place of those of learner and workers.
struct ArraysCheckpoint {
  int64_t step = 0;
  ArrayFile file;
  LogState logs = {};  // of the run at the time
};

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
  // The newest of these, none if there is none. Throws Error if it is damaged, and says what to
  // move away to go on from the newest that is not. Nothing is fallen back to.
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
  ArraysCheckpoint ReadArrays(int64_t step) const;
  void Complete(const CheckpointManifest& manifest) const;
  void RemoveStep(int64_t step) const;
  void ApplyRetention() const;

  std::string directory_;
  CheckpointRetention retention_;
  std::function<void(std::string_view)> on_event_;
};

}  // namespace lopt
