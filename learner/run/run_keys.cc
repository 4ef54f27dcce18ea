#include "lopt/learner/run/run_keys.h"

namespace lopt {

void RunKeys::VisitTimeouts(FieldVisitor& v) {
  v.FreeOnResume().Field("worker_timeout_seconds", &worker_timeout_seconds, AtLeast(0),
                         "A process of the job that is silent for so long ends the job; 0: never.");
  v.FreeOnResume().Field(
      "progress_timeout_seconds", &progress_timeout_seconds, AtLeast(0),
      "A process that answers, but whose computation does not get on for so long, ends the job; 0: "
      "never. Windows get on with every inner step, a checkpoint is to be complete in that time.");
}

void RunKeys::VisitMachine(FieldVisitor& v) {
  v.FreeOnResume().Field(
      "data_dir", &data_dir,
      "Directory of the tasks' data files; empty: image tasks draw their data. A resume must "
      "find the same data there.");
  v.FreeOnResume().Field(
      "isa", &isa,
      "Instruction set of the kernels; empty: the best of the machine. To resume with "
      "another one, pass --allow-isa-change.");
}

void RunKeys::VisitIntervals(FieldVisitor& v) {
  v.FreeOnResume().Field(
      "checkpoint_seconds", &checkpoint_seconds, AtLeast(0),
      "A checkpoint is written when this much time has passed since the last; 0: not by time.");
  v.FreeOnResume().Field("checkpoint_steps", &checkpoint_steps, AtLeast(0),
                         "A checkpoint is written after every so many updates; 0: not by updates.");
  v.FreeOnResume().Field("keep_last", &keep_last, AtLeast(1),
                         "The newest checkpoints that are kept.");
  v.FreeOnResume().Field(
      "keep_every", &keep_every, AtLeast(0),
      "Checkpoints at multiples of this many updates are kept for good; 0: none.");
  v.FreeOnResume().Field("metrics_steps", &metrics_steps, AtLeast(1),
                         "Metrics are written for every so many-th update.");
}

bool RunKeys::CheckpointIsDue(int64_t step, int64_t saved_step, double seconds) const {
  return (checkpoint_steps > 0 && step / checkpoint_steps > saved_step / checkpoint_steps) ||
         (checkpoint_seconds > 0 && seconds >= checkpoint_seconds);
}

}  // namespace lopt
