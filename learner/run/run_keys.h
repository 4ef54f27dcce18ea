#pragma once

#include <cstdint>
#include <string>

#include "lopt/base/fields.h"

namespace lopt {

// Keys that the configs of all runs have which may last long: where they run, and how often they
// write what. All may change on resume.
struct RunKeys {
  double worker_timeout_seconds = 60;
  double progress_timeout_seconds = 600;
  std::string data_dir;
  std::string isa;
  double checkpoint_seconds = 30;
  int64_t checkpoint_steps = 0;
  int64_t keep_last = 3;
  int64_t keep_every = 0;
  int64_t metrics_steps = 1;

  // Whether a run that has made `step` updates is to write a checkpoint, the newest being of
  // `saved_step`, written `seconds` ago.
  bool CheckpointIsDue(int64_t step, int64_t saved_step, double seconds) const;

 protected:
  // The keys in parts, between which a config may show its own.
  void VisitTimeouts(FieldVisitor& v);
  void VisitMachine(FieldVisitor& v);
  void VisitIntervals(FieldVisitor& v);
};

}  // namespace lopt
