#include "lopt/learner/run/run_keys.h"

#include <fmt/format.h>

#include "lopt/base/option_words.h"

namespace lopt {

void RunKeys::VisitTimeouts(FieldVisitor& v) {
  v.FreeOnResume().Field("worker_timeout_seconds", &worker_timeout_seconds, AtLeast(0),
                         "A process that is silent for so long ends the job; 0: never.");
  v.FreeOnResume().Field(
      "progress_timeout_seconds", &progress_timeout_seconds, AtLeast(0),
      "A process that answers but makes no progress for so long ends the job; 0: never. Every "
      "inner step is progress, or on a GPU every window, and so is a complete checkpoint.");
}

void RunKeys::VisitMachine(FieldVisitor& v) {
  v.FreeOnResume().Field(
      "data_dir", &data_dir,
      "Directory of the tasks' data files; empty: image tasks draw their data. A resume must "
      "find the same data there.");
  v.FreeOnResume().Field(
      "isa", &isa,
      fmt::format("Instruction set of the kernels; empty: the best of the machine. To resume with "
                  "another one, pass {}.",
                  FlagWords("allow-isa-change"))
          .c_str());
}

void RunKeys::VisitIntervals(FieldVisitor& v) {
  v.FreeOnResume().Field("checkpoint_seconds", &checkpoint_seconds, AtLeast(0),
                         "Time between checkpoints; 0: not by time.");
  v.FreeOnResume().Field("checkpoint_steps", &checkpoint_steps, AtLeast(0),
                         "Updates between checkpoints; 0: not by updates.");
  v.FreeOnResume().Field("keep_last", &keep_last, AtLeast(1),
                         "How many of the newest checkpoints are kept.");
  v.FreeOnResume().Field(
      "keep_every", &keep_every, AtLeast(0),
      "At each multiple of so many updates a checkpoint is due, and the first one from "
      "there on is kept for good; 0: none.");
  v.FreeOnResume().Field("metrics_steps", &metrics_steps, AtLeast(1),
                         "Updates between lines of metrics.");
}

bool RunKeys::CheckpointIsDue(int64_t step, int64_t saved_step, double seconds) const {
  const auto passes_multiple = [&](int64_t steps) {
    return steps > 0 && step / steps > saved_step / steps;
  };
  return passes_multiple(checkpoint_steps) || passes_multiple(keep_every) ||
         (checkpoint_seconds > 0 && seconds >= checkpoint_seconds);
}

}  // namespace lopt
